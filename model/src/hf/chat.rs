//! The template by which the model in a folder was taught to chat: it makes one text of messages.
//!
//! The template is `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`. It runs as
//! in transformers: a line of a block leaves no line break, and `raise_exception` is known. What a
//! template may do is bounded by the same budget as that of a [task](crate::eval::task::template).

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::{Value, json};

use crate::eval::task::template::{self, one_line};

/// A template for chats that compiles.
#[derive(Debug)]
pub struct ChatTemplate {
    /// The functions and bounds with which it runs.
    environment: Environment<'static>,
    /// The template itself, which is compiled for each text.
    source: String,
    /// The text of the token that begins a document, which some templates repeat; empty if none is named.
    bos: String,
    /// The text of the token that ends an answer; empty if none is named.
    eos: String,
}

/// The template of a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path} has no template for chats that can be used: {why}")]
pub struct ChatError {
    /// The file that has the template.
    pub path: PathBuf,
    /// What is wrong with it, in a line.
    pub why: String,
}

impl ChatTemplate {
    /// Opens the template of the model in `folder`, if it has one.
    ///
    /// # Errors
    /// If it has one that is too long, or no Jinja.
    pub fn open(folder: &Path) -> Result<Option<Self>, ChatError> {
        let [alone, config] = [ALONE, CONFIG].map(|name| folder.join(name));
        let wrong = |path: &Path, why| ChatError { path: path.to_owned(), why };
        let settings = match read(&config).map_err(|why| wrong(&config, why))? {
            Some(text) => serde_json::from_str::<Value>(&text)
                .map_err(|error| wrong(&config, error.to_string()))?,
            None => Value::Null,
        };
        let [bos, eos] = ["bos_token", "eos_token"].map(|name| {
            let named = [&settings[name], &settings[name]["content"]];
            named.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
        });
        let (path, source) = match read(&alone).map_err(|why| wrong(&alone, why))? {
            Some(text) => (alone, text),
            None => match template(&settings["chat_template"]) {
                Some(text) => (config, text.to_owned()),
                None => return Ok(None),
            },
        };
        let environment = environment();
        if let Err(error) = environment.template_from_str(&source) {
            return Err(wrong(&path, one_line(error)));
        }
        Ok(Some(Self { environment, source, bos, eos }))
    }

    /// The text of these messages, each with a `role` and a `content`, up to where the answer
    /// begins.
    ///
    /// # Errors
    /// What the template refuses, in one line.
    pub fn text(&self, messages: &[Value]) -> Result<String, String> {
        let given = json!({
            "messages": messages,
            "add_generation_prompt": true,
            "bos_token": self.bos,
            "eos_token": self.eos,
        });
        self.environment.render_str(&self.source, Serde(&given)).map_err(one_line)
    }
}

/// Jinja as transformers sets it up, with fuel for one text.
fn environment() -> Environment<'static> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    let mut environment = template::environment(syntax);
    environment.add_function("raise_exception", |why: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, why))
    });
    environment
}

/// The template itself, or of several the one that is called `default`.
fn template(found: &Value) -> Option<&str> {
    match found {
        Value::String(text) => Some(text),
        Value::Array(list) => {
            list.iter().find(|one| one["name"] == "default")?["template"].as_str()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// The text of a file; `None` if there is none, as beside a model that is one `.pth`.
fn read(path: &Path) -> Result<Option<String>, String> {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if absent.contains(&error.kind()) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("it is longer than {BYTES_MAX} bytes"));
    }
    Ok(Some(text))
}

/// The file that holds nothing but the template.
const ALONE: &str = "chat_template.jinja";
/// The file of the tokenizer's settings.
const CONFIG: &str = "tokenizer_config.json";
/// More than any of these files has: some list 100,000 added tokens.
const BYTES_MAX: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::mutants::Mutants;

    const CHATML: &str = "{% for message in messages %}\n{% if message.role == 'tool' %}\n\
        {{ raise_exception('no tools here') }}\n{% endif %}\n\
        <|{{ message['role'] }}|>{{ message['content'].strip() }}{{ eos_token }}\n{% endfor %}\n\
        {% if add_generation_prompt %}<|assistant|>{% endif %}";

    /// Llama 2 repeats the token before each question.
    #[test]
    fn a_template_may_repeat_the_token_that_begins_a_document() {
        let folder = tempfile::tempdir().unwrap();
        let source = "{% for m in messages %}{{ bos_token + m.content }}{% endfor %}";
        for bos in [json!("<s>"), json!({ "content": "<s>" })] {
            let settings = json!({ "chat_template": source, "bos_token": bos });
            fs::write(folder.path().join(CONFIG), settings.to_string()).unwrap();
            let template = ChatTemplate::open(folder.path()).unwrap().unwrap();
            let messages = ["a", "b"].map(|content| json!({ "role": "user", "content": content }));
            assert_eq!(template.text(&messages).unwrap(), "<s>a<s>b");
        }
    }

    #[test]
    fn messages_become_the_text_that_the_template_says() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert!(ChatTemplate::open(folder.path()).unwrap().is_none());
        write("model.pth", "a model that is one file");
        assert!(ChatTemplate::open(&folder.path().join("model.pth")).unwrap().is_none());
        fs::create_dir(folder.path().join(ALONE)).unwrap();
        assert!(ChatTemplate::open(folder.path()).is_err(), "it cannot be read");
        fs::remove_dir(folder.path().join(ALONE)).unwrap();
        let settings = json!({ "chat_template": CHATML, "eos_token": { "content": "</s>" } });
        write(CONFIG, &settings.to_string());
        let template = ChatTemplate::open(folder.path()).unwrap().unwrap();
        let said = |role: &str| json!({ "role": role, "content": " hello " });
        let text = template.text(&[said("user"), said("assistant")]).unwrap();
        assert_eq!(text, "<|user|>hello</s>\n<|assistant|>hello</s>\n<|assistant|>");
        let why = template.text(&[said("tool")]).unwrap_err();
        assert!(why.contains("no tools here"), "{why}");
        write(ALONE, "{{ messages | length }}");
        let template = ChatTemplate::open(folder.path()).unwrap().unwrap();
        assert_eq!(template.text(&[said("user")]).unwrap(), "1");
        write(ALONE, "{{ messages");
        let why = ChatTemplate::open(folder.path()).unwrap_err().to_string();
        assert!(why.contains(ALONE) && why.contains("line 1"), "{why}");
    }

    /// Small changes of a template: each makes a text or says why not, and takes bounded time.
    #[test]
    fn mutants_are_templates_or_errors() {
        let mut mutants = Mutants::new(b"{}%[]()|'\"=.,:~+-*/<> \n_09\xffeis");
        let folder = tempfile::tempdir().unwrap();
        let messages = ["user", "assistant"].map(|role| json!({ "role": role, "content": "a" }));
        let mut good = 0;
        for _ in 0..Mutants::count(3000) {
            let mut bytes = CHATML.as_bytes().to_vec();
            mutants.change(&mut bytes, 0);
            fs::write(folder.path().join(ALONE), bytes).unwrap();
            let said = ChatTemplate::open(folder.path()).map_err(|error| error.to_string());
            match said.and_then(|template| template.unwrap().text(&messages)) {
                Ok(_) => good += 1,
                Err(why) => assert!(!why.is_empty()),
            }
        }
        assert!(good > 0, "some changes do no harm");
    }
}
