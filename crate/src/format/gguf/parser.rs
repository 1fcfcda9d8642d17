//! The parser: chunks of bytes in, first the header and then the tensors' bytes out.

use super::header::Header;
use super::header_reader::HeaderReader;
use super::{FORMAT, quoted};
use crate::error::{Error, Result};

/// What the parser found in the bytes that it was given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    /// The header is complete. Comes once, before everything else.
    Header(&'a Header),
    /// Bytes of a tensor, a slice of the chunk that was pushed.
    TensorData {
        /// The tensor's index in [`Header::tensors`].
        index: usize,
        /// Where in the tensor these bytes start.
        offset: u64,
        /// The bytes; never empty.
        bytes: &'a [u8],
    },
    /// A tensor is complete.
    TensorEnd {
        /// The tensor's index in [`Header::tensors`].
        index: usize,
    },
}

/// A streaming parser of one GGUF file.
///
/// Bytes come in chunks of any size. Only bytes of the header are kept, as the values that they mean; tensor data is passed through.
/// Tensors come in file order, whole and one after the other; bytes between and behind them are skipped. The tensors of a split model lie in several files, each of which takes a parser.
#[derive(Debug)]
pub struct Parser {
    stage: Stage,
    failure: Option<Error>,
}

#[derive(Debug)]
enum Stage {
    Header(Box<HeaderReader>),
    Data(Data),
}

/// A place in the tensor data.
#[derive(Debug)]
struct Data {
    header: Header,
    /// Bytes of the file that were read so far.
    position: u64,
    /// The index of the tensor whose bytes come next.
    index: usize,
}

impl Default for Parser {
    fn default() -> Self {
        Parser::new()
    }
}

impl Parser {
    /// A parser at the start of a file.
    pub fn new() -> Self {
        Parser { stage: Stage::Header(Box::new(HeaderReader::new())), failure: None }
    }

    /// Takes the file's next bytes, and tells `sink` what they complete.
    ///
    /// # Errors
    /// [`Error::InvalidFile`] naming the field when the file breaks the format, [`Error::UnsupportedModel`] for a version or a tensor type that is not read here, and whatever `sink` returns.
    /// The parser stays failed: all later calls return the same error.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Event<'_>) -> Result<()>) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let result = self.advance(bytes, sink);
        self.failure = result.as_ref().err().cloned();
        result
    }

    /// The header, once it is complete.
    pub fn header(&self) -> Option<&Header> {
        match &self.stage {
            Stage::Header(_) => None,
            Stage::Data(data) => Some(&data.header),
        }
    }

    /// Says that the file ends here, and returns its header.
    ///
    /// # Errors
    /// [`Error::TruncatedFile`] when the header or a tensor is not complete; the error of a [`push`](Self::push) that failed.
    pub fn finish(self) -> Result<Header> {
        match (self.failure, self.stage) {
            (Some(failure), _) => Err(failure),
            (None, Stage::Header(reader)) => Err(reader.truncated()),
            (None, Stage::Data(data)) => data.finish(),
        }
    }

    fn advance(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Event<'_>) -> Result<()>) -> Result<()> {
        match &mut self.stage {
            Stage::Header(reader) => {
                let Some((header, rest)) = reader.read(bytes)? else { return Ok(()) };
                sink(Event::Header(&header))?;
                let mut data = Data { position: header.header_bytes, header, index: 0 };
                let result = data.advance(rest, sink);
                self.stage = Stage::Data(data);
                result
            }
            Stage::Data(data) => data.advance(bytes, sink),
        }
    }
}

impl Data {
    fn advance(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(Event<'_>) -> Result<()>) -> Result<()> {
        while let Some(tensor) = self.header.tensors.get(self.index) {
            let index = self.index;
            let start = self.header.data_offset + tensor.offset;
            if self.position < start {
                let padding = split_up_to(&mut bytes, start - self.position);
                self.position += padding.len() as u64;
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let offset = self.position - start;
            let data = split_up_to(&mut bytes, tensor.bytes - offset);
            self.position += data.len() as u64;
            sink(Event::TensorData { index, offset, bytes: data })?;
            if self.position == start + tensor.bytes {
                self.index += 1;
                sink(Event::TensorEnd { index })?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Header> {
        let Some(tensor) = self.header.tensors.get(self.index) else { return Ok(self.header) };
        let (position, total) = (self.position, self.header.total_bytes());
        Err(Error::TruncatedFile {
            format: FORMAT,
            field: format!("tensor {}", quoted(&tensor.name)),
            reason: format!("the file ends after {position} of {total} bytes, {} too early", total - position),
        })
    }
}

/// Takes up to `length` bytes off the front of `bytes`.
fn split_up_to<'a>(bytes: &mut &'a [u8], length: u64) -> &'a [u8] {
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    let (front, rest) = bytes.split_at(length);
    *bytes = rest;
    front
}
