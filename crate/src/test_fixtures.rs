//! Reads the files under `tests/fixtures` for the unit tests.

use std::io::Read;

/// The bytes of a file. One that is kept compressed is found by the name that it has without `.gz`.
pub fn read(name: &str) -> Vec<u8> {
    let path = format!("{}/../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    if let Ok(file) = std::fs::File::open(format!("{path}.gz")) {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        return bytes;
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
