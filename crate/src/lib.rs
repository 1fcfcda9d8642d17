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

pub mod chat;
pub mod device;
pub mod error;
pub mod format;
pub mod generation;
pub mod inference;
pub mod kernels;
pub mod models;
pub mod quant;
pub mod tokenizer;
#[cfg(target_arch = "wasm32")]
pub mod web;

pub use error::{Error, Result};
