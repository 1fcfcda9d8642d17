//! Fuzzes the GGUF parser: no bytes make it panic, what it says does not depend on the chunks, and what it believes is within the file.
//!
//! Run from the repository's root with `cargo +nightly fuzz run gguf`.
//!
//! The first byte of an input is the size of the chunks, the rest is the file.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crate/src/error.rs"]
mod error;
#[allow(dead_code)]
#[path = "../../crate/src/format/mod.rs"]
mod format;

use error::Result;
use format::gguf::{Event, Header, Parser};

/// The header, and the number of bytes that came for the tensors.
fn parse(file: &[u8], chunk_size: usize) -> Result<(Header, u64)> {
    let mut parser = Parser::new();
    let mut received = 0;
    let mut sink = |event: Event<'_>| {
        if let Event::TensorData { bytes, .. } = event {
            received += bytes.len() as u64;
        }
        Ok(())
    };
    for chunk in file.chunks(chunk_size) {
        parser.push(chunk, &mut sink)?;
    }
    Ok((parser.finish()?, received))
}

fuzz_target!(|input: &[u8]| {
    let Some((&chunk_size, file)) = input.split_first() else { return };
    let whole = parse(file, file.len().max(1));
    let chunked = parse(file, usize::from(chunk_size).max(1));
    // As text, in which a NaN in the metadata equals itself.
    assert_eq!(format!("{whole:?}"), format!("{chunked:?}"));
    if let Ok((header, received)) = whole {
        assert!(header.total_bytes() <= file.len() as u64);
        assert_eq!(received, header.tensors.iter().map(|tensor| tensor.bytes).sum::<u64>());
        assert!(header.tensors.windows(2).all(|pair| pair[0].offset + pair[0].bytes <= pair[1].offset));
        for tensor in &header.tensors {
            assert!(tensor.offset.is_multiple_of(header.alignment));
            assert_eq!(tensor.ty.bytes_for(tensor.columns() * tensor.rows()), Some(tensor.bytes));
        }
    }
});
