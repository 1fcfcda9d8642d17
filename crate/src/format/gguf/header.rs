//! The header: everything before the tensor data, checked so that all that follows may trust it.

use std::collections::HashSet;

use super::metadata::Metadata;
use super::{invalid, quoted};
use crate::error::Result;
use crate::format::TensorType;

/// Where tensors start when the metadata does not say: at multiples of this many bytes.
const DEFAULT_ALIGNMENT: u32 = 32;

/// What the header says of one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// The name, unique in the file.
    pub name: String,
    /// The extents in ggml's order: `dims[0]` values lie next to each other. At least one, none of them 0.
    pub dims: Vec<u64>,
    /// How the values are stored.
    pub ty: TensorType,
    /// Where the tensor's bytes start, counted from the start of the tensor data.
    pub offset: u64,
    /// The number of the tensor's bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// The values of a row, which lie next to each other: the input features of a weight matrix.
    pub fn columns(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// The number of rows: the output features of a weight matrix.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }
}

/// Everything before the tensor data.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The version of the format: 2 or 3.
    pub version: u32,
    /// The metadata entries.
    pub metadata: Metadata,
    /// The tensors, in the order in which their bytes lie in the file.
    pub tensors: Vec<TensorInfo>,
    /// Every tensor's offset is a multiple of this, which is a power of two.
    pub alignment: u64,
    /// Bytes from the start of the file to the end of the tensor table.
    pub header_bytes: u64,
    /// Bytes from the start of the file to the start of the tensor data: `header_bytes` rounded up to the alignment.
    pub data_offset: u64,
}

impl Header {
    /// Lays out what the file declares, and checks that it can be so.
    ///
    /// # Errors
    /// Naming the field, when the alignment is no power of two, two tensors have one name, or a tensor is misaligned, overlaps another or ends past 2^64 bytes.
    pub(super) fn new(
        version: u32,
        metadata: Metadata,
        mut tensors: Vec<TensorInfo>,
        header_bytes: u64,
    ) -> Result<Header> {
        let key = "general.alignment";
        let alignment = metadata.u32(key)?.unwrap_or(DEFAULT_ALIGNMENT);
        if !alignment.is_power_of_two() {
            return Err(invalid(key, format!("is {alignment}, and has to be a power of two")));
        }
        let alignment = u64::from(alignment);
        // Neither is near 2^64: a header is at most `MAX_HEADER_BYTES`, an alignment at most 2^31.
        let data_offset = header_bytes.next_multiple_of(alignment);

        let mut names = HashSet::with_capacity(tensors.len());
        for tensor in &tensors {
            if !names.insert(tensor.name.as_str()) {
                return Err(invalid(format!("tensor {}", quoted(&tensor.name)), "is declared twice"));
            }
        }
        drop(names);

        tensors.sort_by_key(|tensor| tensor.offset);
        let mut end = 0;
        let mut before = "";
        for tensor in &tensors {
            let field = || format!("tensor {} offset", quoted(&tensor.name));
            let offset = tensor.offset;
            if !offset.is_multiple_of(alignment) {
                return Err(invalid(
                    field(),
                    format!("is {offset}, which is no multiple of the alignment, {alignment}"),
                ));
            }
            if offset < end {
                let before = quoted(before);
                return Err(invalid(field(), format!("is {offset}, inside tensor {before}, which ends at {end}")));
            }
            end = offset.checked_add(tensor.bytes).filter(|end| end.checked_add(data_offset).is_some()).ok_or_else(
                || invalid(field(), format!("is {offset}, so that the tensor would end past 2^64 bytes")),
            )?;
            before = &tensor.name;
        }
        Ok(Header { version, metadata, tensors, alignment, header_bytes, data_offset })
    }

    /// Bytes of the file up to the end of its last tensor. What may follow is padding.
    pub fn total_bytes(&self) -> u64 {
        match self.tensors.last() {
            Some(last) => self.data_offset + last.offset + last.bytes,
            None => self.header_bytes,
        }
    }
}
