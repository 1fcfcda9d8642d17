//! The GGUF parser allocates no more than the bytes that it was given justify, whatever they claim.
//!
//! In a process of its own, whose allocator counts.
#![cfg(not(target_arch = "wasm32"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Read;

use hearth::error::Result;
use hearth::format::gguf::Parser;

/// The system's allocator, which keeps count of the bytes that each thread holds, and of the most that it held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // Fails only while a thread ends, when nothing is measured.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `run` held at once, beside those that were held before.
fn peak_of<T>(run: impl FnOnce() -> T) -> (usize, T) {
    let before = HELD.get();
    PEAK.set(before);
    let result = run();
    ((PEAK.get() - before) as usize, result)
}

/// The most bytes that parsing `file` in chunks of `chunk_size` held at once.
fn peak(file: &[u8], chunk_size: usize) -> (usize, Result<()>) {
    peak_of(|| {
        let mut parser = Parser::new();
        for chunk in file.chunks(chunk_size) {
            parser.push(chunk, &mut |_| Ok(()))?;
        }
        parser.finish().map(drop)
    })
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/{}"), name)).unwrap()
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// The start of a header that declares one entry, and the start of an array as its value.
fn array(element_type: u32, length: u64) -> Vec<u8> {
    let (tensors, entries) = (0u64.to_le_bytes(), 1u64.to_le_bytes());
    let start = [b"GGUF".to_vec(), vec![3, 0, 0, 0], tensors.to_vec(), entries.to_vec(), string(b"key")].concat();
    [start, vec![9, 0, 0, 0], element_type.to_le_bytes().to_vec(), length.to_le_bytes().to_vec()].concat()
}

#[test]
fn counts_what_is_held() {
    let (bytes, vector) = peak_of(|| {
        drop(vec![0u8; 5_000_000]);
        vec![0u8; 1000]
    });
    assert_eq!(vector.len(), 1000);
    assert!((5_000_000..5_010_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_vocabulary_takes_a_few_times_its_bytes() {
    let mut file = Vec::new();
    let compressed = fixture("vocab/ggml-vocab-llama-bpe.gguf.gz");
    flate2::read::GzDecoder::new(compressed.as_slice()).read_to_end(&mut file).unwrap();
    for chunk_size in [1000, 65536, file.len()] {
        let (bytes, result) = peak(&file, chunk_size);
        assert_eq!(result, Ok(()));
        // 408,403 strings, each a heap block of its own, beside the array of their addresses while that grows.
        assert!(bytes < 4 * file.len(), "{bytes} bytes for a file of {}", file.len());
    }
}

#[test]
fn tensor_data_takes_nothing() {
    let file = fixture("tiny/llama32/F16.gguf");
    let (bytes, result) = peak(&file, 4096);
    assert_eq!(result, Ok(()));
    assert!(bytes < 100_000, "{bytes}");
}

#[test]
fn what_a_header_only_claims_takes_nothing() {
    // The largest claims that are believed, for lack of anything that contradicts them yet.
    let string_of_100_mib = [&array(8, 2)[..], &(100u64 << 20).to_le_bytes(), b"text"].concat();
    let many_tensors = [&b"GGUF\x03\0\0\0"[..], &3_000_000u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
    let many_entries = [&b"GGUF\x03\0\0\0"[..], &0u64.to_le_bytes(), &8_000_000u64.to_le_bytes()].concat();
    let files = [
        array(0, 100 << 20),
        array(8, 10 << 20),
        array(9, 10 << 20),
        array(12, 10 << 20),
        string_of_100_mib,
        many_tensors,
        many_entries,
    ];
    for file in files {
        for chunk_size in [1, file.len()] {
            let (bytes, result) = peak(&file, chunk_size);
            assert_eq!(result.unwrap_err().code(), "truncated_file");
            assert!(bytes < 2000, "{bytes} bytes for {}", file.escape_ascii());
        }
    }
}

#[test]
fn the_values_that_grow_most_in_memory_stay_within_a_small_factor() {
    const COUNT: usize = 100_000;
    let empty_strings = [array(8, COUNT as u64), string(b"").repeat(COUNT)].concat();
    let empty_arrays = [array(9, COUNT as u64), [0; 12].repeat(COUNT)].concat();
    let short_keys = (0..COUNT).flat_map(|i| [string(format!("{i:x}").as_bytes()), vec![0; 5]].concat());
    let entries = [&b"GGUF\x03\0\0\0"[..], &0u64.to_le_bytes(), &(COUNT as u64).to_le_bytes()].concat();
    let entries = entries.into_iter().chain(short_keys).collect();
    let short_tensors = (0..COUNT).flat_map(|i| {
        let name = string(format!("{i:x}").as_bytes());
        let (rank, dim, ty) = (1u32.to_le_bytes(), 1u64.to_le_bytes(), 0u32.to_le_bytes());
        [&name[..], &rank, &dim, &ty, &(32 * i as u64).to_le_bytes()].concat()
    });
    let tensors = [&b"GGUF\x03\0\0\0"[..], &(COUNT as u64).to_le_bytes(), &0u64.to_le_bytes()].concat();
    let tensors = tensors.into_iter().chain(short_tensors).collect();
    for file in [empty_strings, empty_arrays, entries, tensors] {
        let (bytes, _) = peak(&file, 1000);
        assert!(bytes < 12 * file.len(), "{bytes} bytes for a file of {}", file.len());
        assert!(bytes > file.len(), "{bytes} bytes for a file of {}: it was not read", file.len());
    }
}
