//! Templates that turn a document into text, in the language of Jinja.
//!
//! As in lm-eval, a template that is the name of a field is the field, a name that is unknown is an
//! error, and a line break at the end stays. Strings and lists have the methods that templates
//! written for Python use. A template cannot read files, and its work and what it makes are bounded
//! by a budget.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::Value as Json;

/// The environment in which templates run.
#[derive(Debug)]
pub struct Templates {
    /// Without templates of its own: each is compiled when it is used.
    environment: Environment<'static>,
}

impl Default for Templates {
    fn default() -> Self {
        Self::new()
    }
}

impl Templates {
    /// An environment without any template. A name that is not in the document is an error, nothing
    /// is escaped, and every run has a budget of its own.
    #[must_use]
    pub fn new() -> Self {
        let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
        let mut environment = environment(syntax);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        Self { environment }
    }

    /// The text that `template` makes of a document.
    ///
    /// # Errors
    /// What is wrong with the template or the document, in one line.
    pub fn text(&self, template: &str, doc: &Json) -> Result<String, String> {
        if let Some(field) = doc.get(template) {
            return Ok(match field {
                Json::String(text) => text.clone(),
                other => other.to_string(),
            });
        }
        self.environment.render_str(template, Serde(doc)).map_err(one_line)
    }

    /// The list that `template` makes of a document: a field that is one, an expression in braces,
    /// or a text that is a list in JSON.
    ///
    /// # Errors
    /// As those of [`text`](Self::text), or if it is not a list of texts and numbers.
    pub fn list(&self, template: &str, doc: &Json) -> Result<Vec<String>, String> {
        if let Some(field) = doc.get(template) {
            return texts(field);
        }
        let inner = template.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        if let Some(expression) =
            inner.and_then(|inner| self.environment.compile_expression(inner).ok())
        {
            let value = expression.eval(Serde(doc)).map_err(one_line)?;
            let value = serde_json::to_value(value).map_err(|error| error.to_string())?;
            return texts(&value);
        }
        let text = self.text(template, doc)?;
        let value = serde_json::from_str(&text);
        texts(&value.map_err(|_| format!("{} is no list", excerpt(&text)))?)
    }
}

/// Jinja of this syntax without any template: nothing is escaped, values have the methods of
/// Python, and every run has a budget of its own.
pub(crate) fn environment(syntax: Result<SyntaxConfig, Error>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax.unwrap_or_default());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_fuel(Some(FUEL));
    environment
}

/// The methods of Python's strings, lists and dictionaries, without `format`, whose width could
/// make a text of any length. `index` of a list is added here.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if method == "format" {
        return Err(Error::from(ErrorKind::UnknownMethod));
    }
    if let (ValueKind::Seq, "index", [wanted]) = (value.kind(), method, arguments) {
        let found = value.try_iter()?.position(|one| one == *wanted);
        let none =
            || Error::new(ErrorKind::InvalidOperation, format!("{wanted} is not in the list"));
        return found.map(Value::from).ok_or_else(none);
    }
    unknown_method_callback(state, value, method, arguments)
}

/// The members of a list as texts.
fn texts(value: &Json) -> Result<Vec<String>, String> {
    let shown = |value: &Json| match value {
        Json::String(text) => excerpt(text),
        other => excerpt(&other.to_string()),
    };
    let list = value.as_array().ok_or_else(|| format!("{} is no list", shown(value)))?;
    let text = |one: &Json| match one {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => {
            Err(format!("{} in the list is no text", shown(one)))
        }
    };
    list.iter().map(text).collect()
}

/// What is wrong with a template or its document.
pub(crate) fn one_line(error: Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    let line = error.line().map_or_else(String::new, |line| format!(" (line {line} of it)"));
    match error.kind() {
        ErrorKind::OutOfFuel => "it does too much for one document: make it simpler".to_owned(),
        _ => format!("{what}{line}"),
    }
}

/// The first characters of a text, for a message.
pub(super) fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// Steps of a template on one document. Each also stands for 64 bytes that it may make.
const FUEL: u64 = 200_000;
/// Characters of a text that a message shows.
const EXCERPT_CHARS: usize = 60;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_a_template_and_an_expression() {
        let doc = json!({
            "question": "Why? ", "label": 2,
            "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "key": "B", "sol": "x",
        });
        let templates = Templates::new();
        assert_eq!(templates.text("question", &doc).unwrap(), "Why? ");
        assert_eq!(templates.text("label", &doc).unwrap(), "2");
        let text = "Q: {{question.strip()}}\n";
        assert_eq!(templates.text(text, &doc).unwrap(), "Q: Why?\n");
        let index = "{{choices.label.index(key)}}";
        assert_eq!(templates.text(index, &doc).unwrap(), "1");
        assert_eq!(templates.text("{{ '<' if sol else '>' }}", &doc).unwrap(), "<");
        assert_eq!(templates.list("{{choices.text}}", &doc).unwrap(), ["a", "b"]);
        assert_eq!(templates.list("{{[sol, label]}}", &doc).unwrap(), ["x", "2"]);
        assert_eq!(templates.list("[\"{{sol}}\"]", &doc).unwrap(), ["x"]);
    }

    #[test]
    fn what_fails_says_why_in_a_line() {
        let doc = json!({ "a": "b", "list": [[1]] });
        let templates = Templates::new();
        for (template, words) in [
            ("{{ absent }}", "undefined"),
            ("{{ a.nothing() }}", "nothing"),
            ("{{ a", "line 1"),
            ("{% include 'x' %}", "line 1"),
            ("{{ [a].index('c') }}", "c is not in the list"),
            (
                "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}",
                "too much",
            ),
            ("{{ ('a' * 100000).replace('a', 'b' * 100000) }}", "too much"),
            ("{{ '{:>900000000}'.format(a) }}", "format"),
        ] {
            let why = templates.text(template, &doc).unwrap_err();
            assert!(why.contains(words) && !why.contains('\n'), "{template}: {why}");
        }
        for template in ["a", "{{ a }}", "list", "{{ {} }}", "absent"] {
            let why = templates.list(template, &doc).unwrap_err();
            assert!(why.contains("list"), "{template}: {why}");
        }
    }
}
