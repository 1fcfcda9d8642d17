//! GGUF, the file format of llama.cpp: versions 2 and 3, little-endian, read as a stream.
//!
//! ```text
//! "GGUF"  version u32  tensor count u64  entry count u64
//! entries:  key string, value type u32, value
//! tensors:  name string, rank u32, dims u64 x rank, type u32, offset u64
//! padding to the alignment
//! tensor data, each tensor at its offset
//! ```
//!
//! [`Parser`] takes the bytes in chunks of any size. Once the tensor table is complete it hands out the [`Header`], and from then on the tensors' bytes in file order.
//!
//! The format is specified at <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod cursor;
mod header;
mod header_reader;
mod metadata;
mod parser;
mod signature;
mod value;
mod value_reader;

#[cfg(test)]
mod tests;

pub use cursor::MAX_HEADER_BYTES;
pub use header::{Header, TensorInfo};
pub use metadata::Metadata;
pub use parser::{Event, Parser};
pub use value::{Array, Value};

use crate::error::Error;

/// The name of the format in errors.
const FORMAT: &str = "GGUF";

/// The error for a field that breaks the specification.
fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Error {
    Error::InvalidFile { format: FORMAT, field: field.into(), reason: reason.into() }
}

/// A name out of the file, fit to stand in a message: escaped, and cut when it is long.
fn quoted(name: &str) -> String {
    const LONGEST: usize = 80;
    match name.char_indices().nth(LONGEST) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}...", &name[..end]),
    }
}
