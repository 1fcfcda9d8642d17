//! The crate's one error type. Every variant has a stable code, which JavaScript sees as `error.code`, says what happened, and says what to do
//! where there is something to do.

use thiserror::Error as ThisError;

/// The result of everything that can fail in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, from a broken file to a lost device.
#[derive(Debug, Clone, PartialEq, ThisError)]
pub enum Error {
    /// The bytes are not what the format's specification allows.
    #[error("invalid {format} file: {field}: {reason}")]
    InvalidFile {
        /// The format that was expected, such as `GGUF`.
        format: &'static str,
        /// The field that is wrong, such as `tensor "output.weight" offset`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file ends before its own header says that it does.
    #[error("the {format} file is truncated: {field}: {reason}; download or copy it again")]
    TruncatedFile {
        /// The format that was expected.
        format: &'static str,
        /// What was being read when the bytes ran out.
        field: String,
        /// How much is missing.
        reason: String,
    },
    /// A well-formed file that holds something this crate cannot run.
    #[error("unsupported model: {what}: {reason}")]
    UnsupportedModel {
        /// What is not supported, such as `general.architecture`.
        what: String,
        /// Why, and what would work.
        reason: String,
    },
    /// The tokenizer's vocabulary or configuration cannot be used.
    #[error("invalid tokenizer: {0}")]
    InvalidTokenizer(String),
    /// The chat template cannot be parsed or rendered.
    #[error("chat template: {0}")]
    InvalidTemplate(String),
    /// A value that the caller gave is out of its range.
    #[error("invalid value for {name}: {reason}")]
    InvalidParameter {
        /// The parameter's name, as the caller wrote it.
        name: &'static str,
        /// Its range, and what was given.
        reason: String,
    },
    /// The prompt does not fit into the context.
    #[error("the prompt has {actual} tokens and the context holds {max}: shorten it by {} or start a new chat", actual.saturating_sub(*max))]
    ContextLengthExceeded {
        /// Tokens that were asked for.
        actual: usize,
        /// Tokens that fit.
        max: usize,
    },
    /// The browser offers no WebGPU, or no adapter.
    #[error("WebGPU is not available: {0}")]
    WebGpuUnavailable(String),
    /// The device refused or failed.
    #[error("device: {0}")]
    Device(String),
    /// The device is gone; a new one has to be opened and the model loaded again.
    #[error("the device was lost: {0}; load the model again")]
    DeviceLost(String),
    /// The model does not fit into memory, on the device or before it gets there.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// No model is loaded yet.
    #[error("no model is loaded: load one first")]
    NoModel,
    /// The engine already runs something that excludes this call.
    #[error("busy: {0}")]
    Busy(String),
    /// The caller stopped it.
    #[error("cancelled")]
    Cancelled,
    /// The operating system refused to read or write.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's words.
        reason: String,
    },
}

impl Error {
    /// The stable code of this error, the same in every release.
    pub fn code(&self) -> &'static str {
        match self {
            Error::InvalidFile { .. } => "invalid_file",
            Error::TruncatedFile { .. } => "truncated_file",
            Error::UnsupportedModel { .. } => "unsupported_model",
            Error::InvalidTokenizer(_) => "invalid_tokenizer",
            Error::InvalidTemplate(_) => "invalid_template",
            Error::InvalidParameter { .. } => "invalid_parameter",
            Error::ContextLengthExceeded { .. } => "context_length_exceeded",
            Error::WebGpuUnavailable(_) => "webgpu_unavailable",
            Error::Device(_) => "device_error",
            Error::DeviceLost(_) => "device_lost",
            Error::OutOfMemory(_) => "out_of_memory",
            Error::NoModel => "no_model",
            Error::Busy(_) => "busy",
            Error::Cancelled => "cancelled",
            Error::Io { .. } => "io_error",
        }
    }
}
