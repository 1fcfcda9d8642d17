//! Model files as bytes: what is in them and where, with no idea of tensors on a device.
//!
//! A parser takes the bytes as they come, checks everything that the file claims before it is believed, and hands the
//! tensor data on without keeping it.

pub mod gguf;
mod tensor_type;

pub use tensor_type::TensorType;
