//! Reads the header out of a stream, field by field in the order of the file.

use std::mem;

use super::cursor::{Carry, Cursor};
use super::header::{Header, TensorInfo};
use super::metadata::Metadata;
use super::signature::{check_magic, check_version};
use super::value_reader::ValueReader;
use super::{FORMAT, invalid, quoted};
use crate::error::{Error, Result};
use crate::format::TensorType;

/// The fewest bytes of a metadata entry: a key of one byte and its length, a type, a value of one byte.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;

/// The fewest bytes of an entry of the tensor table: a name of one byte and its length, a rank, one extent, a type, an offset.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// The most dimensions that ggml's tensors have.
const MAX_RANK: u32 = 4;

/// The field that is read next.
#[derive(Debug)]
enum Step {
    Magic,
    Version,
    TensorCount,
    EntryCount,
    Key,
    Value { key: String, value: ValueReader },
    TensorName,
    TensorRank { name: String },
    TensorDims { name: String, rank: u32, dims: Vec<u64> },
    TensorType { name: String, dims: Vec<u64> },
    TensorOffset { name: String, dims: Vec<u64>, ty: TensorType },
}

/// A header of which bytes are still to come.
#[derive(Debug)]
pub(super) struct HeaderReader {
    carry: Carry,
    step: Step,
    version: u32,
    tensor_count: u64,
    entry_count: u64,
    entries_read: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

impl HeaderReader {
    pub fn new() -> Self {
        HeaderReader {
            carry: Carry::default(),
            step: Step::Magic,
            version: 0,
            tensor_count: 0,
            entry_count: 0,
            entries_read: 0,
            metadata: Metadata::default(),
            tensors: Vec::new(),
        }
    }

    /// Reads on. Returns the header once it is complete, with the bytes of `chunk` that lie behind it.
    ///
    /// # Errors
    /// Naming the field, when the bytes are no GGUF header of a supported version with supported tensor types.
    pub fn read<'a>(&mut self, chunk: &'a [u8]) -> Result<Option<(Header, &'a [u8])>> {
        let mut cursor = Cursor::new(mem::take(&mut self.carry), chunk);
        while !self.is_complete() {
            let advanced = self.advance(&mut cursor)?;
            cursor.check_length()?;
            if !advanced {
                (self.carry, _) = cursor.into_parts();
                return Ok(None);
            }
        }
        let (carry, rest) = cursor.into_parts();
        let metadata = mem::take(&mut self.metadata);
        let tensors = mem::take(&mut self.tensors);
        let header = Header::new(self.version, metadata, tensors, carry.position())?;
        Ok(Some((header, rest)))
    }

    /// The error for a file that ends here.
    pub fn truncated(&self) -> Error {
        let field = match &self.step {
            Step::Magic => "magic".to_owned(),
            Step::Version => "version".to_owned(),
            Step::TensorCount => "tensor count".to_owned(),
            Step::EntryCount => "metadata entry count".to_owned(),
            Step::Key => format!("metadata key {} of {}", self.entries_read + 1, self.entry_count),
            Step::Value { key, .. } => format!("value of {}", quoted(key)),
            Step::TensorName => format!("tensor {} of {}", self.tensors.len() + 1, self.tensor_count),
            Step::TensorRank { name }
            | Step::TensorDims { name, .. }
            | Step::TensorType { name, .. }
            | Step::TensorOffset { name, .. } => format!("tensor {}", quoted(name)),
        };
        let position = self.carry.position();
        let reason = match self.carry.missing() {
            Some(missing) => format!("the header ends after {position} bytes, {missing} before the end of a string"),
            None => format!("the header ends after {position} bytes"),
        };
        Error::TruncatedFile { format: FORMAT, field, reason }
    }

    fn is_complete(&self) -> bool {
        matches!(self.step, Step::TensorName) && self.tensors.len() as u64 == self.tensor_count
    }

    /// Reads one field; returns whether it was there.
    fn advance(&mut self, cursor: &mut Cursor<'_>) -> Result<bool> {
        match &mut self.step {
            Step::Magic => {
                let Some(magic) = cursor.array() else { return Ok(false) };
                check_magic(magic)?;
                self.step = Step::Version;
            }
            Step::Version => {
                let Some(version) = cursor.u32() else { return Ok(false) };
                check_version(version)?;
                self.version = version;
                self.step = Step::TensorCount;
            }
            Step::TensorCount => {
                let Some(count) = cursor.u64() else { return Ok(false) };
                cursor.check_room(count, MIN_TENSOR_BYTES, || "tensor count".to_owned())?;
                self.tensor_count = count;
                self.step = Step::EntryCount;
            }
            Step::EntryCount => {
                let Some(count) = cursor.u64() else { return Ok(false) };
                cursor.check_room(count, MIN_ENTRY_BYTES, || "metadata entry count".to_owned())?;
                self.entry_count = count;
                self.step = self.next_entry();
            }
            Step::Key => {
                let number = self.entries_read + 1;
                let Some(key) = cursor.name(|| format!("metadata key {number}"))? else { return Ok(false) };
                if self.metadata.get(&key).is_some() {
                    return Err(invalid(format!("metadata key {}", quoted(&key)), "is there twice"));
                }
                self.step = Step::Value { key, value: ValueReader::default() };
            }
            Step::Value { key, value } => {
                let Some(value) = value.read(cursor, key)? else { return Ok(false) };
                let key = mem::take(key);
                self.metadata.insert(key, value);
                self.entries_read += 1;
                self.step = self.next_entry();
            }
            Step::TensorName => {
                let number = self.tensors.len() + 1;
                let Some(name) = cursor.name(|| format!("name of tensor {number}"))? else { return Ok(false) };
                self.step = Step::TensorRank { name };
            }
            Step::TensorRank { name } => {
                let Some(rank) = cursor.u32() else { return Ok(false) };
                if !(1..=MAX_RANK).contains(&rank) {
                    let field = format!("tensor {} rank", quoted(name));
                    return Err(invalid(field, format!("is {rank}, and has to be 1 to {MAX_RANK}")));
                }
                let dims = Vec::with_capacity(rank as usize);
                self.step = Step::TensorDims { name: mem::take(name), rank, dims };
            }
            Step::TensorDims { name, rank, dims } => {
                let Some(dim) = cursor.u64() else { return Ok(false) };
                dims.push(dim);
                if dims.len() == *rank as usize {
                    self.step = Step::TensorType { name: mem::take(name), dims: mem::take(dims) };
                }
            }
            Step::TensorType { name, dims } => {
                let Some(id) = cursor.u32() else { return Ok(false) };
                let ty = tensor_type(id, name)?;
                self.step = Step::TensorOffset { name: mem::take(name), dims: mem::take(dims), ty };
            }
            Step::TensorOffset { name, dims, ty } => {
                let Some(offset) = cursor.u64() else { return Ok(false) };
                let bytes = tensor_bytes(name, dims, *ty)?;
                let tensor = TensorInfo { name: mem::take(name), dims: mem::take(dims), ty: *ty, offset, bytes };
                self.tensors.push(tensor);
                self.step = Step::TensorName;
            }
        }
        Ok(true)
    }

    /// The step behind the entry count or an entry.
    fn next_entry(&self) -> Step {
        if self.entries_read < self.entry_count { Step::Key } else { Step::TensorName }
    }
}

/// The type with this id in ggml's numbering.
fn tensor_type(id: u32, name: &str) -> Result<TensorType> {
    TensorType::from_ggml_id(id).ok_or_else(|| {
        let known = match id {
            4 | 5 | 31..=33 | 36..=38 => " (no longer in ggml either)",
            9 | 15 => " (which ggml uses for activations only)",
            16 => " (IQ2_XXS)",
            17 => " (IQ2_XS)",
            18 => " (IQ3_XXS)",
            19 => " (IQ1_S)",
            21 => " (IQ3_S)",
            22 => " (IQ2_S)",
            24..=27 => " (an integer type)",
            28 => " (F64)",
            29 => " (IQ1_M)",
            34 => " (TQ1_0)",
            35 => " (TQ2_0)",
            39 => " (MXFP4)",
            _ => "",
        };
        let supported = TensorType::ALL.map(TensorType::name).join(", ");
        Error::UnsupportedModel {
            what: format!("tensor {}", quoted(name)),
            reason: format!("its type is {id}{known}; choose a file whose tensors are of the types {supported}"),
        }
    })
}

/// The bytes that a tensor of these extents takes.
fn tensor_bytes(name: &str, dims: &[u64], ty: TensorType) -> Result<u64> {
    let wrong = |reason| Err(invalid(format!("tensor {} dimensions", quoted(name)), reason));
    if dims.contains(&0) {
        return wrong(format!("are {dims:?}, and none may be 0"));
    }
    let columns = dims[0];
    if !columns.is_multiple_of(ty.block_len() as u64) {
        let block_len = ty.block_len();
        return wrong(format!("are {dims:?}, but a row of {ty} has to hold whole blocks of {block_len} values"));
    }
    let values = dims.iter().try_fold(1u64, |values, &dim| values.checked_mul(dim));
    match values.and_then(|values| ty.bytes_for(values)) {
        Some(bytes) => Ok(bytes),
        None => wrong(format!("are {dims:?}, which is more than 2^64 bytes")),
    }
}
