//! The form of an answer, as a whole and in parts.

use intellect_model::sample::likely::Likely;

use super::*;
use crate::tools::serve::tests::served;

fn order(asked: AskedFor, body: &Value) -> Order {
    Order::read(body.to_string().as_bytes(), asked, &served(None), 1).unwrap()
}

fn head(asked: AskedFor) -> ReplyHead {
    ReplyHead { id: "x".into(), created: 9, asked }
}

fn record(token: i32, log_probability: Option<f64>) -> TokenRecord {
    let top = Likely { token: 98, log_probability: -0.5 };
    TokenRecord { token, log_probability, top: vec![top] }
}

/// The objects of a stream, whose events each are one line and a blank one.
fn parsed(stream: &str) -> Vec<Value> {
    let events = stream.strip_suffix("\n\n").unwrap().split("\n\n");
    let data = events.map(|event| event.strip_prefix("data: ").unwrap());
    data.map(|data| {
        assert!(!data.contains('\n'), "{data:?}");
        if data == "[DONE]" { json!("done") } else { serde_json::from_str(data).unwrap() }
    })
    .collect()
}

#[test]
fn a_whole_answer_has_the_echo_the_log_probabilities_and_the_counts() {
    let served = served(None);
    let body = json!({ "prompt": "a", "echo": true, "logprobs": 1, "max_tokens": 1 });
    let order = order(AskedFor::Completion, &body);
    let mut gathered = Gathered::new(&order, &served);
    let echo = Delivery::Echo { prompt: 0, records: vec![record(97, Some(-1.0))] };
    gathered.add(echo).unwrap();
    let text =
        Delivery::Text { choice: 0, text: "c".into(), records: vec![record(99, Some(-2.0))] };
    gathered.add(text).unwrap();
    gathered.add(Delivery::End { choice: 0, reason: EndReason::Length, tokens: 1 }).unwrap();
    let reply = gathered.whole(&head(AskedFor::Completion)).unwrap();
    let expected = json!({
        "id": "x", "object": "text_completion", "created": 9, "model": "m",
        "choices": [{
            "index": 0, "text": "ac", "finish_reason": "length",
            "logprobs": {
                "tokens": ["a", "c"], "token_logprobs": [-1.0, -2.0], "text_offset": [0, 1],
                "top_logprobs": [{ "b": -0.5, "a": -1.0 }, { "b": -0.5, "c": -2.0 }],
            },
        }],
        "usage": { "prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3 },
    });
    assert_eq!(reply, expected);
}

#[test]
fn a_chat_is_answered_by_a_message() {
    let served = served(None);
    let body = json!({ "messages": [{ "role": "user", "content": "a" }] });
    let order = order(AskedFor::Chat, &body);
    let mut gathered = Gathered::new(&order, &served);
    gathered.add(Delivery::Text { choice: 0, text: "b".into(), records: Vec::new() }).unwrap();
    gathered.add(Delivery::End { choice: 0, reason: EndReason::Stop, tokens: 2 }).unwrap();
    let reply = gathered.whole(&head(AskedFor::Chat)).unwrap();
    assert_eq!(reply["choices"][0]["message"], json!({ "role": "assistant", "content": "b" }));
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[test]
fn an_answer_with_a_part_missing_is_a_failure() {
    let served = served(None);
    let order = order(AskedFor::Completion, &json!({ "prompt": ["a", "b"] }));
    let mut gathered = Gathered::new(&order, &served);
    gathered.add(Delivery::End { choice: 1, reason: EndReason::Stop, tokens: 2 }).unwrap();
    assert_eq!(gathered.whole(&head(AskedFor::Completion)).unwrap_err().status, 500);
    let mut gathered = Gathered::new(&order, &served);
    assert_eq!(gathered.add(Delivery::Failed(Refusal::busy())), Err(Refusal::busy()));
}

#[test]
fn a_stream_is_events_of_one_line_and_ends_with_done() {
    let mut body = json!({ "prompt": "a", "stream": true, "echo": true });
    body["stream_options"] = json!({ "include_usage": true });
    let order = Arc::new(order(AskedFor::Completion, &body));
    let mut streamed = Streamed::new(head(AskedFor::Completion), order, Arc::new(served(None)));
    let mut sent = streamed.begin();
    let text = Delivery::Text { choice: 0, text: "b\n\nc".into(), records: Vec::new() };
    let (more, is_last) = streamed.add(text);
    assert!(!is_last);
    sent += &more;
    let end = Delivery::End { choice: 0, reason: EndReason::Length, tokens: 4 };
    let (more, is_last) = streamed.add(end);
    assert!(is_last);
    sent = sent + &more + &streamed.end();
    let events = parsed(&sent);
    let texts: Vec<&str> =
        events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(texts, ["a", "b\n\nc", ""]);
    assert_eq!(events[2]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[3]["usage"]["completion_tokens"], 4);
    assert_eq!((events.len(), &events[4]), (5, &json!("done")));
}

#[test]
fn a_chat_in_parts_begins_with_its_role_and_a_failure_ends_it() {
    let mut body = json!({ "messages": [{ "role": "user", "content": "a" }], "stream": true });
    body["stream_options"] = json!({ "include_usage": true });
    let order = Arc::new(order(AskedFor::Chat, &body));
    let mut streamed = Streamed::new(head(AskedFor::Chat), order, Arc::new(served(None)));
    let begin = parsed(&streamed.begin());
    assert_eq!(begin[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(begin[0]["object"], "chat.completion.chunk");
    let (failed, is_last) = streamed.add(Delivery::Failed(Refusal::busy()));
    assert!(is_last && parsed(&failed)[0]["error"]["type"] == "rate_limit_error");
    assert_eq!(parsed(&streamed.end()), [json!("done")]);
}
