//! A GGUF file, pushed in chunks of any size, becomes a model on a device. Each tensor goes to the device when its last byte has come, and is
//! forgotten here: the host holds one tensor at a time.

use super::llama::{Llama, ModelInfo};
use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use crate::format::gguf::{Event, Header, Parser, TensorInfo};
use crate::kernels::{BlockShape, KvPrecision};
use crate::models::LoadedWeights;
use crate::models::llama::LlamaConfig;
use crate::quant::dequantize;
use crate::tokenizer::BpeTokenizer;
use burn::tensor::Device;

/// The tensor that carries Llama 3's rope scaling.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// How to load a model.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Tokens that a conversation may have; the model's own limit caps it. The cache takes memory for all of them.
    pub max_seq_len: usize,
    /// How the cache keeps keys and values.
    pub kv_precision: KvPrecision,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { max_seq_len: 2048, kv_precision: KvPrecision::F16 }
    }
}

/// Loads a GGUF file from a stream of bytes.
#[derive(Debug)]
pub struct ModelLoader {
    parser: Parser,
    assembly: Assembly,
}

/// What of a model has come so far.
#[derive(Debug)]
struct Assembly {
    device: Device,
    options: LoadOptions,
    /// Known from the header on.
    parts: Option<Parts>,
    weights: LoadedWeights,
    /// The bytes of the tensor that is arriving.
    tensor: Vec<u8>,
    rope_factors: Vec<f32>,
}

/// What the header alone says.
#[derive(Debug)]
struct Parts {
    config: LlamaConfig,
    tokenizer: BpeTokenizer,
    template: Option<ChatTemplate>,
    info: ModelInfo,
    tensors: Vec<TensorInfo>,
}

impl ModelLoader {
    /// A loader onto `device`.
    pub fn new(device: &Device, options: LoadOptions) -> Self {
        let assembly = Assembly {
            device: device.clone(),
            options,
            parts: None,
            weights: LoadedWeights::new(LlamaConfig::stacked_with),
            tensor: Vec::new(),
            rope_factors: Vec::new(),
        };
        Self { parser: Parser::new(), assembly }
    }

    /// Takes the file's next bytes.
    ///
    /// # Errors
    /// `InvalidFile`, `UnsupportedModel`, `InvalidTokenizer` or `InvalidTemplate` as soon as the bytes show it. The loader is of no use then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let assembly = &mut self.assembly;
        self.parser.push(bytes, &mut |event| assembly.take(event))
    }

    /// The model's description, once the header has come.
    pub fn info(&self) -> Option<&ModelInfo> {
        self.assembly.parts.as_ref().map(|parts| &parts.info)
    }

    /// The model, when all bytes have come.
    ///
    /// # Errors
    /// `TruncatedFile` when bytes are missing, `InvalidFile` when a tensor that the model needs is not there or has another shape.
    pub fn finish(self) -> Result<Llama<BpeTokenizer>> {
        self.parser.finish()?;
        let Assembly { device, parts, mut weights, rope_factors, .. } = self.assembly;
        let Some(parts) = parts else { return Err(Error::NoModel) };
        let mut config = parts.config;
        config.rope.factors = rope_factors;
        let model = config.load(&mut weights, &device)?;
        let info = ModelInfo { device_bytes: model.device_bytes(), ..parts.info };
        Ok(Llama::new(model, &config, parts.tokenizer, parts.template, info, &device))
    }
}

impl Assembly {
    fn take(&mut self, event: Event<'_>) -> Result<()> {
        match event {
            Event::Header(header) => {
                self.parts = Some(Parts::new(header, &self.options)?);
                Ok(())
            }
            Event::TensorData { index, offset, bytes } => {
                if offset == 0 {
                    let length = self.info(index)?.bytes;
                    let needed =
                        usize::try_from(length).ok().filter(|needed| self.tensor.try_reserve_exact(*needed).is_ok());
                    if needed.is_none() {
                        return Err(Error::OutOfMemory(format!("a tensor of {length} bytes does not fit into memory")));
                    }
                }
                self.tensor.extend_from_slice(bytes);
                Ok(())
            }
            Event::TensorEnd { index } => {
                let bytes = std::mem::take(&mut self.tensor);
                let info = self.info(index)?.clone();
                self.place(&info, bytes)
            }
        }
    }

    fn info(&self, index: usize) -> Result<&TensorInfo> {
        self.parts.as_ref().and_then(|parts| parts.tensors.get(index)).ok_or(Error::NoModel)
    }

    /// Puts a whole tensor where it belongs.
    fn place(&mut self, info: &TensorInfo, bytes: Vec<u8>) -> Result<()> {
        let (rows, columns) = (info.rows() as usize, info.columns() as usize);
        if info.name == ROPE_FACTORS {
            self.rope_factors = vec![0.0; columns];
            dequantize(info.ty, &bytes, &mut self.rope_factors)
        } else if info.dims.len() == 1 {
            self.weights.insert_vector(&info.name, info.ty, columns, &bytes, &self.device)
        } else {
            let shape = BlockShape { ty: info.ty, rows, columns };
            self.weights.insert_matrix(&info.name, shape, bytes, &self.device).map_err(|error| match error {
                Error::UnsupportedModel { what, reason } => {
                    Error::UnsupportedModel { what: format!("tensor {:?}: {what}", info.name), reason }
                }
                other => other,
            })
        }
    }
}

impl Parts {
    fn new(header: &Header, options: &LoadOptions) -> Result<Self> {
        let metadata = &header.metadata;
        let config = LlamaConfig::from_gguf(header, options.max_seq_len)?.with_kv_precision(options.kv_precision);
        let tokenizer = BpeTokenizer::from_gguf(metadata)?;
        // A base model has no template: it loads, and says so when it is asked to chat.
        let template = match metadata.str("tokenizer.chat_template")? {
            Some(_) => Some(ChatTemplate::from_gguf(metadata, &tokenizer)?),
            None => None,
        };
        let info = ModelInfo {
            name: metadata.str("general.name")?.unwrap_or("unnamed model").to_owned(),
            architecture: metadata.require_str("general.architecture")?.to_owned(),
            parameters: header.tensors.iter().map(|tensor| tensor.rows() * tensor.columns()).sum(),
            context_length: config.max_seq_len,
            device_bytes: 0,
        };
        Ok(Self { config, tokenizer, template, info, tensors: header.tensors.clone() })
    }
}
