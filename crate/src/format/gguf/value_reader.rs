//! Reads a metadata value out of a stream, arrays element by element, so that it can stop and go on anywhere.

use super::cursor::Cursor;
use super::value::{Array, Value};
use super::{invalid, quoted};
use crate::error::Result;

/// How deep arrays may lie in arrays. No known file has any that do.
const MAX_DEPTH: usize = 4;

/// The fewest bytes that a string takes: its length.
const MIN_STRING_BYTES: u64 = 8;

/// The fewest bytes that an array takes: its element type and its length.
const MIN_ARRAY_BYTES: u64 = 12;

/// The types of values, as the file numbers them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    fn from_id(id: u32) -> Option<ValueType> {
        const BY_ID: [ValueType; 13] = [
            ValueType::U8,
            ValueType::I8,
            ValueType::U16,
            ValueType::I16,
            ValueType::U32,
            ValueType::I32,
            ValueType::F32,
            ValueType::Bool,
            ValueType::String,
            ValueType::Array,
            ValueType::U64,
            ValueType::I64,
            ValueType::F64,
        ];
        BY_ID.get(usize::try_from(id).ok()?).copied()
    }

    /// An empty array of such elements, and the fewest bytes that one of them takes.
    fn empty_array(self) -> (Array, u64) {
        match self {
            ValueType::U8 => (Array::U8(Vec::new()), 1),
            ValueType::I8 => (Array::I8(Vec::new()), 1),
            ValueType::U16 => (Array::U16(Vec::new()), 2),
            ValueType::I16 => (Array::I16(Vec::new()), 2),
            ValueType::U32 => (Array::U32(Vec::new()), 4),
            ValueType::I32 => (Array::I32(Vec::new()), 4),
            ValueType::F32 => (Array::F32(Vec::new()), 4),
            ValueType::Bool => (Array::Bool(Vec::new()), 1),
            ValueType::String => (Array::String(Vec::new()), MIN_STRING_BYTES),
            ValueType::Array => (Array::Nested(Vec::new()), MIN_ARRAY_BYTES),
            ValueType::U64 => (Array::U64(Vec::new()), 8),
            ValueType::I64 => (Array::I64(Vec::new()), 8),
            ValueType::F64 => (Array::F64(Vec::new()), 8),
        }
    }
}

/// An array of which elements are still to come.
#[derive(Debug)]
struct OpenArray {
    array: Array,
    remaining: u64,
}

/// Reads one value, its type first.
#[derive(Debug, Default)]
pub(super) struct ValueReader {
    ty: Option<ValueType>,
    /// The array being read, inside those that contain it.
    open: Vec<OpenArray>,
}

impl ValueReader {
    /// Reads on; returns the value once it is complete.
    ///
    /// # Errors
    /// Naming `key`, when the bytes are no value.
    pub fn read(&mut self, cursor: &mut Cursor<'_>, key: &str) -> Result<Option<Value>> {
        let ty = match self.ty {
            Some(ty) => ty,
            None => {
                let Some(id) = cursor.u32() else { return Ok(None) };
                *self.ty.insert(value_type(id, key)?)
            }
        };
        match ty {
            ValueType::U8 => Ok(cursor.array().map(u8::from_le_bytes).map(Value::U8)),
            ValueType::I8 => Ok(cursor.array().map(i8::from_le_bytes).map(Value::I8)),
            ValueType::U16 => Ok(cursor.array().map(u16::from_le_bytes).map(Value::U16)),
            ValueType::I16 => Ok(cursor.array().map(i16::from_le_bytes).map(Value::I16)),
            ValueType::U32 => Ok(cursor.array().map(u32::from_le_bytes).map(Value::U32)),
            ValueType::I32 => Ok(cursor.array().map(i32::from_le_bytes).map(Value::I32)),
            ValueType::F32 => Ok(cursor.array().map(f32::from_le_bytes).map(Value::F32)),
            ValueType::U64 => Ok(cursor.array().map(u64::from_le_bytes).map(Value::U64)),
            ValueType::I64 => Ok(cursor.array().map(i64::from_le_bytes).map(Value::I64)),
            ValueType::F64 => Ok(cursor.array().map(f64::from_le_bytes).map(Value::F64)),
            ValueType::Bool => {
                let value = cursor.array().map(|[byte]| boolean(byte, key));
                Ok(value.transpose()?.map(Value::Bool))
            }
            ValueType::String => Ok(cursor.string(|| value_of(key))?.map(Value::String)),
            ValueType::Array => Ok(self.read_array(cursor, key)?.map(Value::Array)),
        }
    }

    fn read_array(&mut self, cursor: &mut Cursor<'_>, key: &str) -> Result<Option<Array>> {
        loop {
            let expects_array = match self.open.last_mut() {
                None => true,
                Some(open) if matches!(open.array, Array::Nested(_)) => open.remaining > 0,
                Some(open) => {
                    if !open.fill(cursor, key)? {
                        return Ok(None);
                    }
                    false
                }
            };
            if expects_array {
                let Some(start) = cursor.array() else { return Ok(None) };
                self.open_array(cursor, start, key)?;
                continue;
            }
            let Some(complete) = self.open.pop() else { continue };
            match self.open.last_mut() {
                Some(OpenArray { array: Array::Nested(arrays), remaining }) => {
                    arrays.push(complete.array);
                    *remaining -= 1;
                }
                _ => return Ok(Some(complete.array)),
            }
        }
    }

    /// Begins an array, given its element type and its length.
    fn open_array(&mut self, cursor: &Cursor<'_>, start: [u8; 12], key: &str) -> Result<()> {
        let [t0, t1, t2, t3, length @ ..] = start;
        let remaining = u64::from_le_bytes(length);
        let (array, min_bytes) = value_type(u32::from_le_bytes([t0, t1, t2, t3]), key)?.empty_array();
        cursor.check_room(remaining, min_bytes, || format!("length of the array {}", quoted(key)))?;
        if self.open.len() == MAX_DEPTH {
            return Err(invalid(value_of(key), format!("nests arrays more than {MAX_DEPTH} deep")));
        }
        self.open.push(OpenArray { array, remaining });
        Ok(())
    }
}

impl OpenArray {
    /// Appends the elements that are there; returns whether that was all of them.
    fn fill(&mut self, cursor: &mut Cursor<'_>, key: &str) -> Result<bool> {
        let remaining = &mut self.remaining;
        match &mut self.array {
            Array::U8(values) => cursor.elements(remaining, |bytes| values.push(u8::from_le_bytes(bytes))),
            Array::I8(values) => cursor.elements(remaining, |bytes| values.push(i8::from_le_bytes(bytes))),
            Array::U16(values) => cursor.elements(remaining, |bytes| values.push(u16::from_le_bytes(bytes))),
            Array::I16(values) => cursor.elements(remaining, |bytes| values.push(i16::from_le_bytes(bytes))),
            Array::U32(values) => cursor.elements(remaining, |bytes| values.push(u32::from_le_bytes(bytes))),
            Array::I32(values) => cursor.elements(remaining, |bytes| values.push(i32::from_le_bytes(bytes))),
            Array::F32(values) => cursor.elements(remaining, |bytes| values.push(f32::from_le_bytes(bytes))),
            Array::U64(values) => cursor.elements(remaining, |bytes| values.push(u64::from_le_bytes(bytes))),
            Array::I64(values) => cursor.elements(remaining, |bytes| values.push(i64::from_le_bytes(bytes))),
            Array::F64(values) => cursor.elements(remaining, |bytes| values.push(f64::from_le_bytes(bytes))),
            Array::Bool(values) => {
                while *remaining > 0 {
                    let Some([byte]) = cursor.array() else { return Ok(false) };
                    values.push(boolean(byte, key)?);
                    *remaining -= 1;
                }
            }
            Array::String(values) => {
                while *remaining > 0 {
                    let name = || format!("element {} of {}", values.len(), quoted(key));
                    let Some(string) = cursor.string(name)? else { return Ok(false) };
                    values.push(string);
                    *remaining -= 1;
                }
            }
            // Its elements are arrays of their own: `read_array` opens and closes them.
            Array::Nested(_) => {}
        }
        Ok(*remaining == 0)
    }
}

/// How errors call the value of `key`.
fn value_of(key: &str) -> String {
    format!("value of {}", quoted(key))
}

fn value_type(id: u32, key: &str) -> Result<ValueType> {
    ValueType::from_id(id)
        .ok_or_else(|| invalid(format!("value type of {}", quoted(key)), format!("is {id}, and 0 to 12 are known")))
}

fn boolean(byte: u8, key: &str) -> Result<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid(value_of(key), format!("has the byte {byte} for a boolean, which is 0 or 1"))),
    }
}
