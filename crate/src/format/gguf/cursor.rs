//! Reads a header's fields out of chunks that may end anywhere.
//!
//! A field that a chunk cuts in two is carried over to the next chunk; nothing else is kept. Each read either returns a whole field or, having taken all that there was, nothing: the
//! caller returns too, and asks for the same field again when there are more bytes. So each byte is looked at once, whatever the chunks are.

use super::invalid;
use crate::error::Result;

/// The most bytes that the part before the tensor data may have. The headers of vocabularies of 256k tokens take about 20 MB.
pub const MAX_HEADER_BYTES: u64 = 128 << 20;

/// What is carried from one chunk to the next.
#[derive(Debug, Default)]
pub(super) struct Carry {
    /// The bytes that are there of the field being read.
    field: Vec<u8>,
    /// The length of the string being read, once that is known.
    string_length: Option<usize>,
    /// Bytes that were read so far, those of `field` included.
    position: u64,
}

impl Carry {
    /// Bytes of the file that were read so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes that the field being read still lacks, where that is known: in the middle of a string.
    pub fn missing(&self) -> Option<usize> {
        self.string_length.map(|length| length - self.field.len())
    }
}

/// The chunk at hand, behind the carried bytes.
pub(super) struct Cursor<'a> {
    carry: Carry,
    chunk: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(carry: Carry, chunk: &'a [u8]) -> Self {
        Cursor { carry, chunk }
    }

    /// What is carried to the next chunk, and the part of this chunk that was not read.
    pub fn into_parts(self) -> (Carry, &'a [u8]) {
        (self.carry, self.chunk)
    }

    /// Reads a field of `length` bytes through `read`.
    pub fn field<T>(&mut self, length: usize, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let carry = &mut self.carry;
        let missing = length - carry.field.len();
        let taken = missing.min(self.chunk.len());
        let (bytes, rest) = self.chunk.split_at(taken);
        self.chunk = rest;
        carry.position += taken as u64;
        if taken < missing {
            carry.field.extend_from_slice(bytes);
            return None;
        }
        if carry.field.is_empty() {
            return Some(read(bytes));
        }
        carry.field.extend_from_slice(bytes);
        let value = read(&carry.field);
        carry.field.clear();
        Some(value)
    }

    /// Reads a field of `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.field(N, |bytes| {
            let mut array = [0; N];
            array.copy_from_slice(bytes);
            array
        })
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads as many of `remaining` elements of `N` bytes as there are, and lowers `remaining` by their number.
    pub fn elements<const N: usize>(&mut self, remaining: &mut u64, mut element: impl FnMut([u8; N])) {
        while *remaining > 0 {
            let whole = if self.carry.field.is_empty() {
                (self.chunk.len() / N).min(usize::try_from(*remaining).unwrap_or(usize::MAX))
            } else {
                0
            };
            if whole > 0 {
                let (elements, rest) = self.chunk.split_at(whole * N);
                for &bytes in elements.as_chunks::<N>().0 {
                    element(bytes);
                }
                self.chunk = rest;
                self.carry.position += elements.len() as u64;
                *remaining -= whole as u64;
            } else {
                let Some(bytes) = self.array() else { return };
                element(bytes);
                *remaining -= 1;
            }
        }
    }

    /// Reads a string: its length as u64, then that many bytes of UTF-8. `name` says in errors which string it is.
    ///
    /// # Errors
    /// When the length is more than a header may have left, or the bytes are not UTF-8.
    pub fn string(&mut self, name: impl Fn() -> String) -> Result<Option<String>> {
        let length = match self.carry.string_length {
            Some(length) => length,
            None => {
                let Some(length) = self.u64() else { return Ok(None) };
                self.check_room(length, 1, || format!("length of {}", name()))?;
                *self.carry.string_length.insert(length as usize)
            }
        };
        let Some(string) = self.field(length, |bytes| std::str::from_utf8(bytes).map(str::to_owned)) else {
            return Ok(None);
        };
        self.carry.string_length = None;
        string
            .map(Some)
            .map_err(|error| invalid(name(), format!("is not UTF-8 (byte {} of {length})", error.valid_up_to())))
    }

    /// Reads a string that names something: not empty. `name` says in errors whose name it is.
    ///
    /// # Errors
    /// As [`string`](Self::string), or when it is empty.
    pub fn name(&mut self, name: impl Fn() -> String) -> Result<Option<String>> {
        match self.string(&name)? {
            Some(string) if string.is_empty() => Err(invalid(name(), "is empty")),
            string => Ok(string),
        }
    }

    /// Checks that `count` items of at least `bytes` each can follow in a header.
    ///
    /// # Errors
    /// When they cannot; `name` says which field claims it.
    pub fn check_room(&self, count: u64, bytes: u64, name: impl FnOnce() -> String) -> Result<()> {
        let room = MAX_HEADER_BYTES.saturating_sub(self.carry.position);
        if count.checked_mul(bytes).is_some_and(|total| total <= room) {
            return Ok(());
        }
        let limit = MAX_HEADER_BYTES >> 20;
        Err(invalid(
            name(),
            format!("is {count}, which is more than fits into a header ({limit} MiB); the file is damaged"),
        ))
    }

    /// Checks that the header is not too long already.
    ///
    /// # Errors
    /// When it is.
    pub fn check_length(&self) -> Result<()> {
        if self.carry.position <= MAX_HEADER_BYTES {
            return Ok(());
        }
        let limit = MAX_HEADER_BYTES >> 20;
        Err(invalid("header", format!("is longer than {limit} MiB; the file is damaged")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor_at(position: u64) -> Cursor<'static> {
        Cursor::new(Carry { position, ..Carry::default() }, &[])
    }

    #[test]
    fn the_room_in_a_header_shrinks_as_it_is_read() {
        let cursor = cursor_at(MAX_HEADER_BYTES - 24);
        let room = |count, bytes| cursor.check_room(count, bytes, || "count".to_owned());
        assert_eq!(room(3, 8), Ok(()));
        assert_eq!(room(24, 1), Ok(()));
        assert!(room(4, 8).is_err());
        assert!(room(u64::MAX, 8).is_err());
    }

    #[test]
    fn rejects_a_header_that_is_longer_than_its_limit() {
        assert_eq!(cursor_at(MAX_HEADER_BYTES).check_length(), Ok(()));
        let error = cursor_at(MAX_HEADER_BYTES + 1).check_length().unwrap_err();
        assert!(error.to_string().contains("header: is longer than 128 MiB"), "{error}");
    }

    #[test]
    fn keeps_no_more_than_the_field_that_is_cut() {
        let mut carry = Carry::default();
        for byte in [&[10], &[11], &[12]] {
            let mut cursor = Cursor::new(carry, byte);
            assert_eq!(cursor.u32(), None);
            (carry, _) = cursor.into_parts();
        }
        assert_eq!(carry.field, [10, 11, 12]);
        let mut cursor = Cursor::new(carry, &[13, 1, 2, 3, 4, 5]);
        assert_eq!(cursor.u32(), Some(u32::from_le_bytes([10, 11, 12, 13])));
        assert_eq!(cursor.u32(), Some(u32::from_le_bytes([1, 2, 3, 4])));
        let (carry, rest) = cursor.into_parts();
        assert_eq!((carry.field.len(), carry.position, rest), (0, 8, &[5][..]));
    }
}
