//! The first eight bytes: is this GGUF at all, and of a version that is read here? Where not, what does it look like instead?

use super::{FORMAT, invalid};
use crate::error::{Error, Result};

/// Versions that are read. Version 1 had lengths of 32 bits.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;

/// Checks the first four bytes.
///
/// # Errors
/// Saying what the file seems to be, when it is not GGUF.
pub(super) fn check_magic(magic: [u8; 4]) -> Result<()> {
    const PAGE: &str = "this is a web page (HTML) rather than a model: the address leads to a page about the file; \
                        use the address of the file itself, which on Hugging Face contains /resolve/ instead of /blob/";
    let reason = match &magic {
        b"GGUF" => return Ok(()),
        [b'<', ..] | [b' ' | b'\n' | b'\r' | b'\t', b'<', ..] | [0xef, 0xbb, 0xbf, b'<'] => PAGE,
        b"vers" => "this is a Git LFS pointer rather than the file it points to; get it with `git lfs pull`",
        [b'{', ..] => "this is JSON, perhaps a server's error message, rather than a model",
        [b'P', b'K', 3, 4] => "this is a zip archive or a PyTorch checkpoint; choose a .gguf file",
        b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => {
            "this is a GGML file from before GGUF; convert it with a current llama.cpp, or choose a .gguf file"
        }
        _ => {
            return Err(invalid(
                "magic",
                format!("starts with \"{}\", and a {FORMAT} file starts with \"GGUF\"", magic.escape_ascii()),
            ));
        }
    };
    Err(invalid("magic", reason))
}

/// Checks the version.
///
/// # Errors
/// When it is another one, or a big-endian one.
pub(super) fn check_version(version: u32) -> Result<()> {
    if VERSIONS.contains(&version) {
        return Ok(());
    }
    let reason = if version == 1 {
        "it is 1, from before August 2023, and 2 and 3 are read; convert the model with a current llama.cpp".to_owned()
    } else if (1..=u32::from(u16::MAX)).contains(&version.swap_bytes()) {
        format!(
            "the file is big-endian (version {}), and little-endian ones are read; choose another file",
            version.swap_bytes()
        )
    } else {
        format!("it is {version}, and 2 and 3 are read; a newer release of Hearth may read it")
    };
    Err(Error::UnsupportedModel { what: format!("{FORMAT} version"), reason })
}
