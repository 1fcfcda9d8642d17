//! A file's metadata: entries by key, and getters that check their types.
//!
//! A getter returns `None` for a key that is not there, and an error that names the key for a value of another type. An integer may be stored in any width,
//! as different writers choose different ones. The `require_` getters return an error for a missing key, too.

use std::collections::BTreeMap;

use super::invalid;
use super::value::{Array, Value};
use crate::error::{Error, Result};

/// The metadata entries of a file, sorted by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    entries: BTreeMap<String, Value>,
}

impl Metadata {
    /// The value of `key`, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// All entries, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry; returns whether the key is new.
    pub(super) fn insert(&mut self, key: String, value: Value) -> bool {
        self.entries.insert(key, value).is_none()
    }

    /// The string under `key`.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |value| match value {
            Value::String(string) => Some(string.as_str()),
            _ => None,
        })
    }

    /// The non-negative integer under `key`, if 32 bits can hold it.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "an integer from 0 to 4294967295", |value| value.integer()?.try_into().ok())
    }

    /// The non-negative integer under `key`, if memory of that size can be addressed.
    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a non-negative integer", |value| value.integer()?.try_into().ok())
    }

    /// The floating-point number under `key`, rounded to single precision.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a floating-point number", |value| match *value {
            Value::F32(number) => Some(number),
            Value::F64(number) => Some(number as f32),
            _ => None,
        })
    }

    /// The boolean under `key`.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a boolean", |value| match *value {
            Value::Bool(truth) => Some(truth),
            _ => None,
        })
    }

    /// The strings of the array under `key`.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::String(strings)) => Some(strings.as_slice()),
            _ => None,
        })
    }

    /// The integers of the array under `key`, if 32 bits can hold each.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.typed(key, "an array of integers of 32 bits", |value| match value {
            Value::Array(array) => array.integers(),
            _ => None,
        })
    }

    /// The non-negative integers of the array under `key`, if 32 bits can hold each.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>> {
        self.typed(key, "an array of non-negative integers of 32 bits", |value| match value {
            Value::Array(array) => array.integers(),
            _ => None,
        })
    }

    /// The single-precision numbers of the array under `key`.
    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>> {
        self.typed(key, "an array of single-precision numbers", |value| match value {
            Value::Array(Array::F32(numbers)) => Some(numbers.as_slice()),
            _ => None,
        })
    }

    /// As [`str`](Self::str), for a key that must be there.
    pub fn require_str(&self, key: &str) -> Result<&str> {
        required(key, self.str(key)?)
    }

    /// As [`u32`](Self::u32), for a key that must be there.
    pub fn require_u32(&self, key: &str) -> Result<u32> {
        required(key, self.u32(key)?)
    }

    /// As [`usize`](Self::usize), for a key that must be there.
    pub fn require_usize(&self, key: &str) -> Result<usize> {
        required(key, self.usize(key)?)
    }

    /// As [`f32`](Self::f32), for a key that must be there.
    pub fn require_f32(&self, key: &str) -> Result<f32> {
        required(key, self.f32(key)?)
    }

    /// As [`bool`](Self::bool), for a key that must be there.
    pub fn require_bool(&self, key: &str) -> Result<bool> {
        required(key, self.bool(key)?)
    }

    /// As [`strings`](Self::strings), for a key that must be there.
    pub fn require_strings(&self, key: &str) -> Result<&[String]> {
        required(key, self.strings(key)?)
    }

    /// As [`i32s`](Self::i32s), for a key that must be there.
    pub fn require_i32s(&self, key: &str) -> Result<Vec<i32>> {
        required(key, self.i32s(key)?)
    }

    /// As [`f32s`](Self::f32s), for a key that must be there.
    pub fn require_f32s(&self, key: &str) -> Result<&[f32]> {
        required(key, self.f32s(key)?)
    }

    /// The value of `key` through `convert`, which returns nothing for what is not `expected`.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => {
                let found = match value.integer() {
                    Some(integer) => integer.to_string(),
                    None => value.description().to_owned(),
                };
                Err(invalid(key, format!("is {found}, and has to be {expected}")))
            }
        }
    }
}

fn required<T>(key: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| invalid(key, "is not in the metadata, and this model needs it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(value: Value) -> Metadata {
        let mut metadata = Metadata::default();
        assert!(metadata.insert("key".to_owned(), value));
        metadata
    }

    #[test]
    fn reads_an_integer_of_any_width() {
        for value in [
            Value::U8(7),
            Value::I8(7),
            Value::U16(7),
            Value::I16(7),
            Value::U32(7),
            Value::I32(7),
            Value::U64(7),
            Value::I64(7),
        ] {
            let metadata = metadata(value);
            assert_eq!(metadata.u32("key"), Ok(Some(7)));
            assert_eq!(metadata.require_usize("key"), Ok(7));
        }
        for array in [Array::U8(vec![7]), Array::I16(vec![7]), Array::I32(vec![7]), Array::U64(vec![7])] {
            let metadata = metadata(Value::Array(array));
            assert_eq!(metadata.u32s("key"), Ok(Some(vec![7])));
            assert_eq!(metadata.require_i32s("key"), Ok(vec![7]));
        }
    }

    #[test]
    fn names_the_key_and_the_number_that_does_not_fit() {
        let error = metadata(Value::I32(-3)).u32("key").unwrap_err().to_string();
        assert_eq!(error, "invalid GGUF file: key: is -3, and has to be an integer from 0 to 4294967295");
        assert!(metadata(Value::U64(1 << 32)).u32("key").is_err());
        assert!(metadata(Value::Array(Array::I32(vec![1, -1]))).u32s("key").is_err());
        assert!(metadata(Value::Array(Array::U32(vec![u32::MAX]))).i32s("key").is_err());
    }

    #[test]
    fn names_the_key_and_both_types_when_the_type_is_another() {
        let strings = metadata(Value::Array(Array::String(vec![])));
        assert_eq!(
            strings.str("key").unwrap_err().to_string(),
            "invalid GGUF file: key: is an array of strings, and has to be a string"
        );
        assert_eq!(strings.strings("key"), Ok(Some(&[][..])));
        let number = metadata(Value::F64(0.5));
        assert_eq!(number.f32("key"), Ok(Some(0.5)));
        for error in [
            number.str("key").unwrap_err(),
            number.u32("key").unwrap_err(),
            number.usize("key").unwrap_err(),
            number.bool("key").unwrap_err(),
            number.strings("key").unwrap_err(),
            number.i32s("key").unwrap_err(),
            number.u32s("key").unwrap_err(),
            number.f32s("key").unwrap_err(),
            metadata(Value::Bool(true)).f32("key").unwrap_err(),
        ] {
            assert_eq!(error.code(), "invalid_file");
            assert!(error.to_string().contains("key: is a"), "{error}");
        }
    }

    #[test]
    fn only_the_required_getters_mind_a_missing_key() {
        let metadata = Metadata::default();
        assert_eq!(metadata.str("llama.name"), Ok(None));
        assert_eq!(metadata.bool("llama.name"), Ok(None));
        assert_eq!(metadata.f32s("llama.name"), Ok(None));
        for error in [
            metadata.require_str("llama.name").unwrap_err(),
            metadata.require_u32("llama.name").unwrap_err(),
            metadata.require_usize("llama.name").unwrap_err(),
            metadata.require_f32("llama.name").unwrap_err(),
            metadata.require_bool("llama.name").unwrap_err(),
            metadata.require_strings("llama.name").unwrap_err(),
            metadata.require_i32s("llama.name").unwrap_err(),
            metadata.require_f32s("llama.name").unwrap_err(),
        ] {
            assert!(error.to_string().contains("llama.name: is not in the metadata"), "{error}");
        }
    }
}
