//! What a client learns when it gets no answer, in the form that clients of OpenAI read.
//!
//! The status says whose turn it is: 4xx the client's, which has to change the request or to wait,
//! 5xx that of the person who runs the server. A refusal ends one request. The connection stays,
//! and other requests are not affected.

use serde_json::{Value, json};

/// Why a request has no answer. Its message names the cause and the remedy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    /// The number of the HTTP status.
    pub(super) status: u16,
    /// The kind of error, in the words of OpenAI. Its libraries choose the type of their exception
    /// by status and kind.
    kind: &'static str,
    /// The sentence that a person reads.
    message: String,
    /// The field that is wrong, if it is one.
    param: Option<String>,
    /// A short name of the error for programs.
    code: Option<&'static str>,
}

impl Refusal {
    /// A field of the request is wrong.
    pub(super) fn field(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::request(message) }
    }

    /// The request as a whole is wrong.
    pub(super) fn request(message: impl Into<String>) -> Self {
        let (kind, message) = ("invalid_request_error", message.into());
        Self { status: 400, kind, message, param: None, code: None }
    }

    /// Prompt and answer do not fit into what the model can read. Programs that shorten a
    /// conversation look for its code.
    pub(super) fn too_long(param: &str, message: impl Into<String>) -> Self {
        Self { code: Some("context_length_exceeded"), ..Self::field(param, message) }
    }

    /// Another model than the one that is here was asked for.
    pub(super) fn no_model(asked: &str, served: &str) -> Self {
        let message = format!("there is no model {asked:?} here: ask for {served:?}");
        Self { status: 404, code: Some("model_not_found"), ..Self::field("model", message) }
    }

    /// There is nothing under this path, or not by this method.
    pub(super) fn no_path(status: u16) -> Self {
        let message =
            "this server has GET /v1/models, POST /v1/completions and POST /v1/chat/completions";
        Self { status, ..Self::request(message) }
    }

    /// The body is longer than a request may be.
    pub(super) fn too_large(most: usize) -> Self {
        let message = format!("a request has at most {most} bytes: send fewer prompts at a time");
        Self { status: 413, ..Self::request(message) }
    }

    /// The body did not come in time, or broke off.
    pub(super) fn no_body() -> Self {
        let message = "the body did not come whole and in time: send the request again";
        Self { status: 408, ..Self::request(message) }
    }

    /// The request names another machine, as a page does that is up to no good.
    pub(super) fn foreign() -> Self {
        let message = "this server answers only programs and pages of its own machine: ask by the \
                       address that it printed, or start it with --listen and an address of the network";
        Self { status: 403, ..Self::request(message) }
    }

    /// As many requests wait as may. Nothing of it stays here, and the same one may be sent again.
    pub(super) fn busy() -> Self {
        let message = "as many requests wait as this server keeps: send this one again in a while";
        Self { status: 429, kind: "rate_limit_error", ..Self::request(message) }
    }

    /// The server is ending, or its model has failed.
    pub(super) fn ending() -> Self {
        let message = "this server is ending: start it again, or ask another one";
        Self { status: 503, kind: "server_error", ..Self::request(message) }
    }

    /// The model could not answer. It is not the client's mistake: the request was in order, and
    /// the device failed or gave scores that are no numbers. Parts that were sent before are lost
    /// for a client that waits for the whole.
    pub(super) fn failed(why: impl std::fmt::Display) -> Self {
        let message = format!("the model could not answer: {why}");
        Self { status: 500, kind: "server_error", ..Self::request(message) }
    }

    /// The body of the answer, in OpenAI's form of an error.
    pub(super) fn json(&self) -> Value {
        let Self { kind, message, param, code, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }
}
