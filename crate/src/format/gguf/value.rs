//! The values that metadata entries can have.

use std::fmt;

/// The value of a metadata entry.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Scalars as they are, strings in quotes, arrays by their length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::F32(value) => write!(f, "{value}"),
            Value::F64(value) => write!(f, "{value}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::String(value) => write!(f, "{value:?}"),
            Value::Array(array) => write!(f, "[{} values]", array.len()),
            integer => write!(f, "{}", integer.integer().unwrap_or_default()),
        }
    }
}

/// An array in the metadata. All elements have one type.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    /// Arrays in an array; each may have its own element type.
    Nested(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// What this is, in words that fit after "is".
    pub(super) fn description(&self) -> &'static str {
        match self {
            Value::U8(_) | Value::U16(_) | Value::U32(_) | Value::U64(_) => "an unsigned integer",
            Value::I8(_) | Value::I16(_) | Value::I32(_) | Value::I64(_) => "a signed integer",
            Value::F32(_) | Value::F64(_) => "a floating-point number",
            Value::Bool(_) => "a boolean",
            Value::String(_) => "a string",
            Value::Array(array) => array.description(),
        }
    }

    /// This as an integer of any width, if it is one.
    pub(super) fn integer(&self) -> Option<i128> {
        match *self {
            Value::U8(value) => Some(value.into()),
            Value::I8(value) => Some(value.into()),
            Value::U16(value) => Some(value.into()),
            Value::I16(value) => Some(value.into()),
            Value::U32(value) => Some(value.into()),
            Value::I32(value) => Some(value.into()),
            Value::U64(value) => Some(value.into()),
            Value::I64(value) => Some(value.into()),
            _ => None,
        }
    }
}

impl Array {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(values) => values.len(),
            Array::I8(values) => values.len(),
            Array::U16(values) => values.len(),
            Array::I16(values) => values.len(),
            Array::U32(values) => values.len(),
            Array::I32(values) => values.len(),
            Array::F32(values) => values.len(),
            Array::Bool(values) => values.len(),
            Array::String(values) => values.len(),
            Array::Nested(values) => values.len(),
            Array::U64(values) => values.len(),
            Array::I64(values) => values.len(),
            Array::F64(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What this is, in words that fit after "is".
    pub(super) fn description(&self) -> &'static str {
        match self {
            Array::U8(_) | Array::U16(_) | Array::U32(_) | Array::U64(_) => "an array of unsigned integers",
            Array::I8(_) | Array::I16(_) | Array::I32(_) | Array::I64(_) => "an array of signed integers",
            Array::F32(_) | Array::F64(_) => "an array of floating-point numbers",
            Array::Bool(_) => "an array of booleans",
            Array::String(_) => "an array of strings",
            Array::Nested(_) => "an array of arrays",
        }
    }

    /// The elements as integers of type `T`; `None` when this is no integer array, or `T` cannot hold one of them.
    pub(super) fn integers<T>(&self) -> Option<Vec<T>>
    where
        T: TryFrom<u8> + TryFrom<i8> + TryFrom<u16> + TryFrom<i16>,
        T: TryFrom<u32> + TryFrom<i32> + TryFrom<u64> + TryFrom<i64>,
    {
        fn convert<S: Copy, T: TryFrom<S>>(values: &[S]) -> Option<Vec<T>> {
            values.iter().map(|&value| T::try_from(value).ok()).collect()
        }
        match self {
            Array::U8(values) => convert(values),
            Array::I8(values) => convert(values),
            Array::U16(values) => convert(values),
            Array::I16(values) => convert(values),
            Array::U32(values) => convert(values),
            Array::I32(values) => convert(values),
            Array::U64(values) => convert(values),
            Array::I64(values) => convert(values),
            _ => None,
        }
    }
}
