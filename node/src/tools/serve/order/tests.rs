//! What is read of good and of bad requests.

use super::*;
use crate::tools::serve::tests::served;

/// What is read of a request to a model that reads at most `reach` tokens at once.
fn read(asked: AskedFor, body: &Value, reach: Option<usize>) -> Result<Order, Refusal> {
    Order::read(body.to_string().as_bytes(), asked, &served(reach), 7)
}

fn completion(body: &Value) -> Result<Order, Refusal> {
    read(AskedFor::Completion, body, Some(16))
}

fn asked(body: &Value) -> Result<Order, Refusal> {
    read(AskedFor::Chat, body, None)
}

fn said(refused: Result<Order, Refusal>) -> String {
    refused.unwrap_err().json()["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_prompt_is_a_text_tokens_or_several_of_them() {
    let tokens = |prompt: Value| {
        let order = completion(&json!({ "prompt": prompt })).unwrap();
        order.prompts.into_iter().map(|prompt| prompt.tokens).collect::<Vec<_>>()
    };
    assert_eq!(tokens(json!("ab")), [vec![256, 97, 98]]);
    assert_eq!(tokens(json!(["a", ""])), [vec![256, 97], vec![256]]);
    assert_eq!(tokens(json!([97, 98])), [vec![97, 98]]);
    assert_eq!(tokens(json!([[97], [256, 98]])), [vec![97], vec![256, 98]]);
    let order = completion(&json!({ "prompt": [[97, 98]], "echo": true })).unwrap();
    assert_eq!((order.prompts[0].hidden, order.prompts[0].text.as_str()), (0, "ab"));
    let wrong = json!([[], [[]], 1, [257], [-1], [1.5], {}, [true]]);
    for prompt in wrong.as_array().unwrap() {
        let message = said(completion(&json!({ "prompt": prompt })));
        let is_form = message.starts_with("prompt: send") && message.contains("257");
        assert!(is_form, "{prompt}: {message}");
    }
    assert!(said(completion(&json!({ "prompt": vec!["a"; 33] }))).contains("32"));
}

#[test]
fn settings_have_openais_defaults() {
    let order =
        completion(&json!({ "prompt": "a", "model": "m", "user": "me", "suffix": null })).unwrap();
    let expected = Sampling {
        temperature: 1.0,
        top_p: 1.0,
        seed: 7,
        tokens: 15,
        ending: Ending::Never,
        keep: Keep::default(),
    };
    assert_eq!((order.sampling, order.choices, order.send), (expected, 1, SendAs::Whole));
    assert_eq!((order.echo, order.logprobs, order.stops.len()), (false, None, 0));
    let order = completion(&json!({
        "prompt": "a", "max_tokens": 0, "temperature": 0, "top_p": 0.5, "seed": -1, "n": 2, "best_of": 2, "stop": "x",
        "echo": true, "logprobs": 1, "stream": true, "stream_options": { "include_usage": true },
        "frequency_penalty": 0.0, "logit_bias": {},
    }));
    let order = order.unwrap();
    let expected = Sampling { temperature: 0.0, top_p: 0.5, seed: u64::MAX, tokens: 0, ..expected };
    assert_eq!((order.sampling, order.choices, order.texts()), (expected, 2, 2));
    assert_eq!((order.echo, order.logprobs, order.stops), (true, Some(1), vec!["x".to_owned()]));
    assert_eq!(order.send, SendAs::Stream { usage: true });
}

#[test]
fn what_is_wrong_or_would_be_ignored_is_refused_by_name() {
    for (body, words) in [
        (json!({ "model": "other" }), "\"m\""),
        (json!({ "temperature": -1 }), "temperature"),
        (json!({ "temperature": "hot" }), "temperature: send a number"),
        (json!({ "top_p": 0 }), "top-p"),
        (json!({ "n": 9 }), "n: send a whole number from 1 to 8"),
        (json!({ "seed": 1.5 }), "seed"),
        (json!({ "stop": ["a", "b", "c", "d", "e"] }), "stop"),
        (json!({ "stop": "" }), "stop"),
        (json!({ "stop": [1] }), "stop"),
        (json!({ "echo": 1 }), "echo: send true or false"),
        (json!({ "logprobs": 21 }), "logprobs"),
        (json!({ "logprobs": true }), "logprobs"),
        (json!({ "max_tokens": -1 }), "max_tokens"),
        (json!({ "best_of": 3 }), "best_of"),
        (json!({ "presence_penalty": 0.5 }), "presence_penalty"),
        (json!({ "suffix": "x" }), "suffix"),
        (json!({ "logit_bias": { "1": 2 } }), "logit_bias"),
        (json!({ "stream_options": {} }), "with stream"),
        (json!({ "stream": true, "stream_options": { "x": 1 } }), "include_usage"),
        (json!({ "messages": [] }), "\"messages\""),
        (json!({ "temprature": 1 }), "\"temprature\""),
    ] {
        let message = said(completion(&body));
        assert!(message.contains(words), "{body}: {message}");
    }
    for body in ["", "{", "[]", "null", "\"a\"", "\u{0}"] {
        let refused = Order::read(body.as_bytes(), AskedFor::Completion, &served(None), 7);
        assert!(said(refused).starts_with("the body is no JSON"), "{body:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(Order::read(deep.as_bytes(), AskedFor::Chat, &served(None), 7).is_err());
}

/// Some tokenizers leave out what they do not know.
#[test]
fn a_text_without_any_token_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = r#"{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}"#;
    std::fs::write(folder.path().join("tokenizer.json"), file).unwrap();
    let tokenizer = intellect_model::hf::text::open(folder.path(), None).unwrap().tokenizer;
    let served = Served { tokenizer, known: 2, ..served(None) };
    let order = |prompt: &str| {
        let body = json!({ "prompt": prompt, "echo": true, "logprobs": 0 }).to_string();
        Order::read(body.as_bytes(), AskedFor::Completion, &served, 7)
    };
    assert_eq!(order("ab").unwrap().prompts[0].tokens, [0, 1]);
    assert!(said(order("漢")).contains("prompt: the tokenizer has no token"));
}

/// The numbers of a prompt are repeated for each choice, so a body of 1 MB asked for gigabytes.
#[test]
fn an_answer_with_too_many_numbers_is_refused() {
    let order = |n: usize, logprobs: usize| {
        let body = json!({ "prompt": "a".repeat(99_999), "max_tokens": 0, "echo": true, "n": n,
            "logprobs": logprobs });
        read(AskedFor::Completion, &body, None)
    };
    assert_eq!(order(1, 9).unwrap().numbers(), 1_000_000);
    for (n, logprobs) in [(1, 10), (2, 9), (8, 20)] {
        let message = said(order(n, logprobs));
        assert!(message.contains("logprobs: the answer would have over"), "{message}");
    }
}

#[test]
fn what_does_not_fit_into_the_context_is_refused_and_never_cut() {
    let order = |letters: usize, tokens: usize| {
        completion(&json!({ "prompt": "a".repeat(letters), "max_tokens": tokens }))
    };
    let long = order(16, 1);
    assert_eq!(long.as_ref().unwrap_err().json()["error"]["code"], "context_length_exceeded");
    assert!(said(long).contains("17 tokens, and this model reads at most 16"));
    let usual = completion(&json!({ "prompt": "a".repeat(16) }));
    assert!(said(usual).contains("this model reads at most 16"));
    let most = order(15, 1).unwrap();
    assert_eq!(most.sampling.tokens, 1, "the token that is written last is not read");
    assert!(said(order(15, 2)).contains("room for 1"));
    let endless = json!({ "prompt": "a".repeat(140_000) });
    assert!(said(read(AskedFor::Completion, &endless, None)).contains("131072"));
}

#[test]
fn a_chat_becomes_one_prompt_that_ends_where_the_answer_begins() {
    let order = asked(&json!({ "messages": [
        { "role": "developer", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "text", "text": "Wh" }, { "type": "text", "text": "y?" }] },
    ], "max_completion_tokens": 5 }))
    .unwrap();
    assert_eq!(order.prompts[0].text, "System: Be brief.\n\nUser: Why?\n\nAssistant:");
    assert_eq!((order.sampling.tokens, order.stops), (5, vec![NEXT_QUESTION.to_owned()]));
    for (messages, words) in [
        (json!([]), "1 to 256"),
        (json!("hello"), "1 to 256"),
        (json!([{ "role": "tool", "content": "a" }]), "0: the role"),
        (json!([{ "role": "user", "content": 1 }]), "0: the content"),
        (json!([{ "role": "user", "content": [{ "type": "image_url" }] }]), "0: the content"),
    ] {
        let message = said(asked(&json!({ "messages": messages })));
        assert!(message.contains(words), "{messages}: {message}");
    }
    let message = [json!({ "role": "user", "content": "a" })];
    assert!(said(asked(&json!({ "messages": message, "logprobs": true }))).contains("logprobs"));
    assert!(said(asked(&json!({ "messages": message, "tools": [1] }))).contains("tools"));
}
