//! The model's chat template: Jinja as `transformers` runs it, on minijinja.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;

use super::Message;
use super::civil_time::CivilTime;
use super::json::tojson;
use crate::error::{Error, Result};
use crate::format::gguf::Metadata;
use crate::tokenizer::Tokenizer;

/// The template's name inside its environment.
const NAME: &str = "chat_template";

/// How much work a rendering may do, in minijinja's units: about one for an instruction and one for 64 bytes. A conversation of a megabyte
/// needs about a twentieth of this.
const FUEL: u64 = 2_000_000;

/// How deep a template's macros and blocks may call each other. WebAssembly's stack is small.
const RECURSION_LIMIT: usize = 64;

/// A chat template, parsed once and rendered for every prompt.
///
/// The environment is that of `transformers`: `trim_blocks`, `lstrip_blocks`, loop controls, lenient undefined values, Python's string,
/// list and dictionary methods, and the functions `raise_exception` and `strftime_now`.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    bos_token: String,
    eos_token: String,
}

/// What one rendering needs besides the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Whether to end with the beginning of the model's answer.
    pub add_generation_prompt: bool,
    /// The local time as seconds since 1970-01-01 00:00 local time, for templates that tell the model the date. Without it they do not see
    /// `strftime_now` and take the date that is written in them.
    pub now: Option<i64>,
    /// More variables for the template, such as `date_string`. They win over the usual ones.
    pub variables: BTreeMap<String, serde_json::Value>,
}

/// The variables that every rendering sets.
#[derive(Serialize)]
struct Context<'a> {
    messages: &'a [Message],
    add_generation_prompt: bool,
    bos_token: &'a str,
    eos_token: &'a str,
}

impl ChatTemplate {
    /// Parses a template. `bos_token` and `eos_token` are the texts that it may write at the ends of a sequence.
    ///
    /// # Errors
    /// [`Error::InvalidTemplate`] with the line for what is not Jinja.
    pub fn new(source: impl Into<String>, bos_token: impl Into<String>, eos_token: impl Into<String>) -> Result<Self> {
        let source = source.into();
        let syntax = (SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true)).build().map_err(template_error)?;
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.set_recursion_limit(RECURSION_LIMIT);
        environment.set_fuel(Some(FUEL));
        environment.add_filter("tojson", tojson);
        environment.add_test("iterable", is_iterable);
        environment.add_function("raise_exception", raise_exception);
        (environment.add_template_owned(NAME, source.clone())).map_err(template_error)?;
        Ok(ChatTemplate { environment, source, bos_token: bos_token.into(), eos_token: eos_token.into() })
    }

    /// The template of a GGUF file (`tokenizer.chat_template`), with the ends of a sequence from its tokenizer.
    ///
    /// # Errors
    /// [`Error::InvalidTemplate`] if there is none, as in a base model, or if it is not Jinja.
    pub fn from_gguf(metadata: &Metadata, tokenizer: &(impl Tokenizer + ?Sized)) -> Result<Self> {
        let source = metadata.str("tokenizer.chat_template")?.ok_or_else(|| {
            Error::InvalidTemplate(
                "the file has none (tokenizer.chat_template): this is a base model, which completes text and does not chat; \
                 complete text with it, or give a template"
                    .into(),
            )
        })?;
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.special_token(id)).unwrap_or("");
        Self::new(source, text(tokenizer.bos_id()), text(tokenizer.eos_id()))
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt for `messages` as text, in which the template's special tokens and a user's text that looks like them cannot be told
    /// apart; [`encode`](Self::encode) tells them apart.
    ///
    /// # Errors
    /// [`Error::InvalidTemplate`] with the line if the template fails or refuses the messages (`raise_exception`), or if it takes
    /// too long.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        let template = self.environment.get_template(NAME).map_err(template_error)?;
        let usual = Value::from(Serde(Context {
            messages,
            add_generation_prompt: options.add_generation_prompt,
            bos_token: &self.bos_token,
            eos_token: &self.eos_token,
        }));
        let strftime_now: BTreeMap<_, _> = (options.now)
            .map(|seconds| {
                let now = CivilTime::from_seconds(seconds);
                let function = Value::from_function(move |format: &str| now.strftime(format));
                ("strftime_now", function)
            })
            .into_iter()
            .collect();
        let variables = Value::from(Serde(&options.variables));
        let context = minijinja::context! { ..variables, ..strftime_now, ..usual };
        template.render(context).map_err(template_error)
    }
}

/// Jinja2 can iterate over strings, and templates that test for lists rely on it.
fn is_iterable(value: &Value) -> bool {
    value.as_str().is_some() || value.try_iter().is_ok()
}

fn raise_exception(message: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// What went wrong and in which line.
fn template_error(error: minijinja::Error) -> Error {
    let line = (error.line()).map_or(String::new(), |line| format!("line {line}: "));
    let detail = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too long".to_string(),
        (_, Some(detail)) => detail.to_string(),
        (kind, None) => kind.to_string(),
    };
    Error::InvalidTemplate(format!("{line}{detail}"))
}
