//! Hearth runs Llama-family language models in a browser tab, or natively, on Burn and CubeCL, with weights that stay quantized.
//!
//! Data runs one way, from a file's bytes to streamed text, and so do the modules: each uses those above it and none below.
//!
//! | module | what it is for |
//! |---|---|
//! | [`error`] | one error type, each variant with a stable code |
//! | [`mod@format`] | files as bytes: GGUF, parsed as a stream; knows no Burn |
//! | [`quant`] | block formats: exact reference decoding, packing for a device; knows no Burn |
//! | [`tokenizer`] | text to token ids and back |
//! | [`chat`] | messages and the models' own chat templates |
//! | [`kernels`] | CubeCL kernels and their CPU twins, as a Burn backend extension |
//! | [`device`] | opens the device that a model runs on |
//! | [`models`] | Burn modules: the Llama architecture |
//! | [`generation`] | sampling, stopping, the decode loop |
//! | [`inference`] | a file becomes a [`inference::Llama`], which answers |
//! | `web` | the JavaScript surface: the only module that knows a browser |
//!
//! `npm run lint` keeps the direction.
//!
//! ```no_run
//! use hearth::chat::Message;
//! use hearth::generation::CancelToken;
//! use hearth::inference::{ChatPrompt, GenerationEvent, GenerationOptions, LoadOptions, ModelLoader};
//!
//! async fn ask(file: &[u8], question: &str) -> hearth::Result<String> {
//!     let device = hearth::device::open().await?;
//!     let mut loader = ModelLoader::new(&device, LoadOptions::default());
//!     for chunk in file.chunks(1 << 20) {
//!         loader.push(chunk)?;
//!     }
//!     let mut llama = loader.finish()?;
//!
//!     let prompt = ChatPrompt { messages: vec![Message::user(question)], now: None };
//!     let options = GenerationOptions { max_tokens: 100, ..GenerationOptions::default() };
//!     let on_event = |event: GenerationEvent<'_>| {
//!         if let GenerationEvent::Text { text, .. } = event {
//!             print!("{text}");
//!         }
//!     };
//!     let answer = llama.chat(&prompt, &options, &CancelToken::default(), on_event).await?;
//!     Ok(answer.text)
//! }
//! ```

pub mod chat;
pub mod device;
pub mod error;
pub mod format;
pub mod generation;
pub mod inference;
pub mod kernels;
pub mod models;
pub mod quant;
#[cfg(all(test, not(target_arch = "wasm32")))]
mod test_fixtures;
pub mod tokenizer;
#[cfg(target_arch = "wasm32")]
pub mod web;

pub use error::{Error, Result};
