//! Conversations: messages, the model's own chat template, and the token ids of a rendered prompt.
//!
//! A chat template is a Jinja program that comes with the model and writes the signals (special tokens) between the messages. What a
//! user writes is never taken for a signal; see [`ChatTemplate::encode`].

mod civil_time;
mod json;
mod message;
mod prompt;
mod template;

#[cfg(all(test, not(target_arch = "wasm32")))]
mod fixture_tests;

pub use message::Message;
pub use template::{ChatTemplate, RenderOptions};
