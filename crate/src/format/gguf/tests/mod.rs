//! Tests of the whole parser: a writer of small files, right ones and wrong ones, and a recorder of what the parser says of them.

mod fixtures;
mod hostile;
mod properties;

use super::{Event, Header, Parser};
use crate::error::{Error, Result};
use crate::format::TensorType;

/// The ids of value types.
const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// A file as its parts, each of which can be wrong.
#[derive(Clone)]
struct File {
    magic: [u8; 4],
    version: u32,
    /// Declared in place of the true count.
    tensor_count: Option<u64>,
    /// Declared in place of the true count.
    entry_count: Option<u64>,
    entries: Vec<u8>,
    entries_written: u64,
    tensors: Vec<u8>,
    tensors_written: u64,
    /// What lies behind the padding.
    data: Vec<u8>,
}

impl File {
    fn new() -> Self {
        File {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            entry_count: None,
            entries: Vec::new(),
            entries_written: 0,
            tensors: Vec::new(),
            tensors_written: 0,
            data: Vec::new(),
        }
    }

    fn entry(mut self, key: &str, value_type: u32, value: &[u8]) -> Self {
        self.entries.extend(string(key.as_bytes()));
        self.entries.extend(value_type.to_le_bytes());
        self.entries.extend(value);
        self.entries_written += 1;
        self
    }

    fn tensor(self, name: &str, dims: &[u64], ty: TensorType, offset: u64) -> Self {
        self.raw_tensor(name.as_bytes(), dims, ty.ggml_id(), offset)
    }

    fn raw_tensor(mut self, name: &[u8], dims: &[u64], type_id: u32, offset: u64) -> Self {
        self.tensors.extend(string(name));
        self.tensors.extend((dims.len() as u32).to_le_bytes());
        self.tensors.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        self.tensors.extend(type_id.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.tensors_written += 1;
        self
    }

    fn data(mut self, bytes: usize) -> Self {
        self.data = (0..bytes).map(|i| (i * 31 + 7) as u8).collect();
        self
    }

    /// The file, padded to an alignment of 32.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.tensor_count.unwrap_or(self.tensors_written).to_le_bytes());
        bytes.extend(self.entry_count.unwrap_or(self.entries_written).to_le_bytes());
        bytes.extend(&self.entries);
        bytes.extend(&self.tensors);
        if !self.data.is_empty() {
            bytes.resize(bytes.len().next_multiple_of(32), 0);
            bytes.extend(&self.data);
        }
        bytes
    }

    /// A right file with every kind of thing in it.
    fn example() -> Self {
        let mut strings = array(STRING, 3);
        strings.extend([string(b"a"), string(b""), string("\u{e9}\u{4e2d}".as_bytes())].concat());
        let mut nested = array(ARRAY, 2);
        nested.extend([array(U8, 2), vec![1, 2], array(BOOL, 1), vec![1]].concat());
        File::new()
            .entry("general.name", STRING, &string(b"example"))
            .entry("general.alignment", U32, &32u32.to_le_bytes())
            .entry("a.bool", BOOL, &[1])
            .entry("an.array.of.strings", ARRAY, &strings)
            .entry("an.array.of.arrays", ARRAY, &nested)
            .tensor("second", &[32, 2], TensorType::Q8_0, 32)
            .tensor("first", &[3], TensorType::F32, 0)
            .data(100)
    }
}

/// A length and that many bytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// The start of an array.
fn array(element_type: u32, length: u64) -> Vec<u8> {
    [&element_type.to_le_bytes()[..], &length.to_le_bytes()].concat()
}

/// What a parser said of a file.
#[derive(Debug, PartialEq)]
struct Recording {
    header: Header,
    /// The bytes of each tensor.
    tensors: Vec<Vec<u8>>,
}

/// Parses a file that comes in such chunks, over and over; checks the order of the events.
fn parse(file: &[u8], chunk_sizes: &[usize]) -> Result<Recording> {
    let mut parser = Parser::new();
    let mut tensors: Vec<Vec<u8>> = Vec::new();
    let mut header: Option<Header> = None;
    let mut complete = 0;
    let mut sink = |event: Event<'_>| {
        match event {
            Event::Header(read) => {
                assert!(header.replace(read.clone()).is_none(), "a second header");
            }
            Event::TensorData { index, offset, bytes } => {
                assert!(!bytes.is_empty());
                assert_eq!(index, complete, "data of one tensor amid another");
                if offset == 0 {
                    tensors.push(Vec::new());
                }
                assert_eq!(index, tensors.len() - 1);
                assert_eq!(offset, tensors[index].len() as u64, "a gap");
                tensors[index].extend(bytes);
            }
            Event::TensorEnd { index } => {
                assert_eq!(index, complete, "the end of another tensor");
                let header = header.as_ref().expect("the header comes before the tensors");
                assert_eq!(header.tensors[index].bytes, tensors[index].len() as u64);
                complete += 1;
            }
        }
        Ok(())
    };
    let mut rest = file;
    for &size in chunk_sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at(size.min(rest.len()));
        parser.push(chunk, &mut sink)?;
        rest = after;
    }
    let finished = parser.finish()?;
    assert_eq!(Some(&finished), header.as_ref());
    assert_eq!(complete, finished.tensors.len());
    Ok(Recording { header: finished, tensors })
}

/// Parses a whole file that is wrong, in one chunk and byte by byte, and returns the error, which must be the same.
fn error_of(file: &[u8]) -> Error {
    let error = parse(file, &[usize::MAX]).expect_err("the file is wrong");
    assert_eq!(parse(file, &[1]).expect_err("the file is wrong"), error);
    error
}
