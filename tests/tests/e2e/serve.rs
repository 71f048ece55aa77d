//! A model that answers other programs: the same numbers as `eval`, streams, refusals, and clients that go away.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{evaluate::trained, story};

const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a request, of which the connection is closed afterwards.
fn send(at: &str, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{head}Connection: close\r\n\r\n{body}").unwrap();
    stream
}

/// The status of an answer and its body, whose chunks are joined.
fn received(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return (status, body.to_owned());
    }
    let (mut rest, mut joined) = (body, String::new());
    loop {
        let (length, behind) = rest.split_once("\r\n").unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return (status, joined);
        }
        joined += &behind[..length];
        rest = behind[length..].strip_prefix("\r\n").unwrap();
    }
}

fn head(at: &str, path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: {at}\r\nContent-Length: {length}\r\n")
}

fn post(at: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let (status, text) = received(send(at, &head(at, path, body.len()), &body));
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}")))
}

/// The objects of a stream, which ends as it should.
fn events(at: &str, path: &str, body: &Value) -> Vec<Value> {
    let body = body.to_string();
    let (status, text) = received(send(at, &head(at, path, body.len()), &body));
    assert_eq!(status, 200, "{text}");
    let events = text.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("no end: {text}"));
    let data = events.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

const COMPLETIONS: &str = "/v1/completions";

#[test]
fn a_trained_model_answers_other_programs() {
    let story = story();
    let data = trained(&story);
    let line = ["serve", "--data-dir", &data, "--device", "cpu", "--listen", "127.0.0.1:0"];
    let mut server = story.start_command("server", &line).unwrap();
    server.wait_until_it_said("\nweights", PATIENCE).unwrap();
    let said = server.said();
    let first = said.lines().next().unwrap();
    let at = first.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();

    let models = format!("GET /v1/models HTTP/1.1\r\nHost: {at}\r\n");
    let (status, models) = received(send(&at, &models, ""));
    let models: Value = serde_json::from_str(&models).unwrap();
    let name = models["data"][0]["id"].as_str().unwrap();
    assert!(status == 200 && first.ends_with(&format!("/v1 serves the model {name}")), "{first}");

    assert_seeded(&at, name);
    assert_streamed(&at);
    assert_likely_as_eval_says(&story, &data, &at);
    assert_refused(&at);
    assert_clients_may_go(&at);
    assert_bounded(&at);

    let (status, chat) = post(
        &at,
        "/v1/chat/completions",
        &json!({ "messages": [{ "role": "user", "content": "abc" }], "max_tokens": 4, "seed": 1 }),
    );
    assert_eq!(
        (status, &chat["choices"][0]["message"]["role"]),
        (200, &json!("assistant")),
        "{chat}"
    );

    assert_followed(&story, &data);

    server.interrupt().unwrap();
    let done = server.wait(PATIENCE).unwrap().expect_success().unwrap();
    assert!(done.out.contains("ended: "), "{}", done.out);
}

fn assert_seeded(at: &str, name: &str) {
    let ask = |seed| {
        let body = json!({
            "model": name, "prompt": ["abc", "xyz"], "max_tokens": 30, "temperature": 3, "seed": seed, "n": 2,
        });
        let (status, reply) = post(at, COMPLETIONS, &body);
        assert_eq!((status, reply["choices"].as_array().map(Vec::len)), (200, Some(4)), "{reply}");
        assert_eq!(reply["usage"]["prompt_tokens"], 8);
        reply["choices"].clone()
    };
    let one = ask(1);
    assert_eq!(one, ask(1));
    assert_ne!(one, ask(2));
    assert_ne!(one[0]["text"], one[1]["text"]);
    let text = greedy(at);
    let stop = &text[text.len() - 2..];
    let body = json!({ "prompt": "abcdefgh", "max_tokens": 4, "temperature": 0, "stop": [stop] });
    let (_, reply) = post(at, COMPLETIONS, &body);
    let expected = json!({
        "index": 0, "text": text[..text.find(stop).unwrap()], "logprobs": null, "finish_reason": "stop",
    });
    assert_eq!(reply["choices"][0], expected);
}

/// The likeliest four letters after some others.
fn greedy(at: &str) -> String {
    let body = json!({ "prompt": "abcdefgh", "max_tokens": 4, "temperature": 0 });
    let (_, reply) = post(at, COMPLETIONS, &body);
    let text = reply["choices"][0]["text"].as_str().unwrap();
    assert!(text.len() == 4 && text.is_ascii(), "{reply}");
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    text.to_owned()
}

fn assert_streamed(at: &str) {
    let mut body = json!({ "prompt": "abc", "max_tokens": 30, "seed": 5, "temperature": 1 });
    let (_, whole) = post(at, COMPLETIONS, &body);
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let events = events(at, COMPLETIONS, &body);
    let texts = events.iter().filter_map(|event| event["choices"][0]["text"].as_str());
    assert_eq!(texts.collect::<String>(), whole["choices"][0]["text"].as_str().unwrap());
    let usage = &events[events.len() - 1]["usage"];
    assert_eq!(usage, &whole["usage"]);
}

/// What lm-eval's client of such servers asks for, with a text and with tokens.
fn assert_likely_as_eval_says(story: &e2e::Story, data: &str, at: &str) {
    let questions = [("abcdefgh", "ijk"), ("uvwxyz", "abq"), ("mno", "p")];
    let line = |(context, continuation): (&str, &str)| {
        json!({ "context": context, "continuation": continuation }).to_string() + "\n"
    };
    fs::write(story.path("questions.jsonl"), questions.map(line).concat()).unwrap();
    let (tasks, details) = (story.text("questions.jsonl"), story.text("served.jsonl"));
    let line =
        ["eval", "--data-dir", data, "--device", "cpu", "--tasks", &tasks, "--details", &details];
    story.node(&line).unwrap().expect_success().unwrap();
    let details = fs::read_to_string(details).unwrap();
    for ((context, continuation), line) in questions.into_iter().zip(details.lines()) {
        let measured: Value = serde_json::from_str(line).unwrap();
        let text = format!("{context}{continuation}");
        let tokens: Vec<u32> = [256].into_iter().chain(text.bytes().map(u32::from)).collect();
        for (prompt, before) in [(json!(text), context.len()), (json!([tokens]), context.len() + 1)]
        {
            let body = json!({
                "prompt": prompt, "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 1, "seed": 1234,
            });
            let (_, reply) = post(at, COMPLETIONS, &body);
            let listed = &reply["choices"][0]["logprobs"];
            let found = listed["token_logprobs"].as_array().unwrap();
            let found = &found[before..found.len() - 1];
            assert_eq!(found.len(), continuation.len(), "{reply}");
            let sum: f64 = found.iter().map(|one| one.as_f64().unwrap()).sum();
            let expected = measured["log_likelihood"].as_f64().unwrap();
            assert!((sum - expected).abs() < 1e-3, "{text}: {sum} instead of {expected}");
            let tops = listed["top_logprobs"].as_array().unwrap();
            let is_greedy = found.iter().zip(&tops[before..]).all(|(one, top)| {
                let top = top.as_object().unwrap().values().map(|top| top.as_f64().unwrap());
                one.as_f64().unwrap() >= top.fold(f64::MIN, f64::max)
            });
            assert_eq!(measured["is_greedy"], is_greedy, "{reply}");
        }
    }
}

fn assert_refused(at: &str) {
    let refused = |body: &Value, status: u16, words: &str| {
        let (found, reply) = post(at, COMPLETIONS, body);
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(found == status && message.contains(words), "{found}: {reply}");
    };
    refused(&json!([]), 400, "JSON object");
    refused(&json!({ "prompt": "a", "model": "gpt" }), 404, "there is no model");
    refused(
        &json!({ "prompt": "a".repeat(60) }),
        400,
        "61 tokens, and this model reads at most 48",
    );
    refused(&json!({ "prompt": "a", "max_tokens": 48 }), 400, "room for 47");
    refused(&json!({ "prompt": "a", "logit_bias": { "5": 1 } }), 400, "logit_bias");
    let large = head(at, COMPLETIONS, 100_000_000);
    let (status, reply) = received(send(at, &large, ""));
    assert!(status == 413 && reply.contains("at most 1048576 bytes"), "{status}: {reply}");
    let (status, _) = received(send(at, &format!("GET /v2 HTTP/1.1\r\nHost: {at}\r\n"), ""));
    assert_eq!(status, 404);
    let (status, _) =
        received(send(at, &format!("GET {COMPLETIONS} HTTP/1.1\r\nHost: {at}\r\n"), ""));
    assert_eq!(status, 405);
    let strange = "GET /v1/models HTTP/1.1\r\nHost: rebound.example\r\n";
    let (status, reply) = received(send(at, strange, ""));
    assert!(status == 403 && reply.contains("its own machine"), "{status}: {reply}");
}

/// Clients that break off in the middle of a stream or of a body take nothing from those that stay.
fn assert_clients_may_go(at: &str) {
    let body = json!({ "prompt": vec!["abc"; 8], "n": 8, "max_tokens": 45, "temperature": 3, "stream": true, "seed": 1 });
    let (body, before) = (body.to_string(), greedy(at));
    let stay = thread::scope(|scope| {
        let stays = scope.spawn(|| {
            let body = json!({ "prompt": "abc", "n": 4, "max_tokens": 45, "temperature": 0.0 });
            post(at, COMPLETIONS, &body)
        });
        for _ in 0..8 {
            let mut stream = send(at, &head(at, COMPLETIONS, body.len()), &body);
            let mut begin = [0; 64];
            stream.read_exact(&mut begin).unwrap();
            drop(stream);
            drop(send(at, &head(at, COMPLETIONS, 1_000), "{\"prompt\":"));
        }
        stays.join().unwrap()
    });
    assert_eq!((stay.0, stay.1["choices"].as_array().map(Vec::len)), (200, Some(4)), "{}", stay.1);
    assert_eq!(before, greedy(at));
}

/// Of a hundred clients who ask for much at once, some are told to come again. The others get all.
fn assert_bounded(at: &str) {
    let body = json!({ "prompt": vec!["abc"; 8], "n": 8, "max_tokens": 45, "temperature": 3 });
    let (body, before) = (body.to_string(), greedy(at));
    let head = head(at, COMPLETIONS, body.len());
    let sent: Vec<_> = (0..100).map(|_| send(at, &head, &body)).collect();
    let answers = sent.into_iter().map(received);
    let (served, refused): (Vec<_>, Vec<_>) = answers.partition(|(status, _)| *status == 200);
    assert!(served.len() >= 64 && !refused.is_empty(), "{} are served", served.len());
    for (_, reply) in served {
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(reply["choices"].as_array().map(Vec::len), Some(64));
    }
    for (status, reply) in refused {
        assert!(status == 429 && reply.contains("send this one again"), "{status}: {reply}");
    }
    assert_eq!(before, greedy(at));
}

/// A server that began with an older state changes to the newest one when that appears.
fn assert_followed(story: &e2e::Story, data: &str) {
    let run = fs::read_dir(format!("{data}/runs")).unwrap().next().unwrap().unwrap();
    let newest = run.path().join("checkpoints/8.ckpt");
    let away = story.path("away.ckpt");
    fs::rename(&newest, &away).unwrap();
    let line =
        ["serve", "--data-dir", data, "--device", "cpu", "--listen", "127.0.0.1:0", "--live"];
    let mut server = story.start_command("live", &line).unwrap();
    server.wait_until_it_said("of epoch 7", PATIENCE).unwrap();
    fs::rename(&away, &newest).unwrap();
    server.wait_until_it_said("now serves the state of epoch 8", PATIENCE).unwrap();
    let said = server.said();
    let at = said.strip_prefix("http://").unwrap().split('/').next().unwrap();
    assert_eq!(greedy(at).len(), 4);
    server.interrupt().unwrap();
    server.wait(PATIENCE).unwrap().expect_success().unwrap();
}
