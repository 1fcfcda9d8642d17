//! A model's shape, and random buffers as its kernels take them. No value is so small that it is a denormal, which software adapters compute slowly.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use cubecl::future::block_on;
use hearth::Result;
use hearth::format::TensorType;
use hearth::kernels::{self, BlockWeight, CacheShape, KvPrecision, ResidualStream, TileVariant};
use hearth::models::llama::{LlamaConfig, RotaryEncodingConfig};
use hearth::models::{RandomWeights, WeightSource};

/// Weights and caches are taken in turn, as a model's layers are, so that they do not come from a cache of the device: as many as the model has, up to so many bytes.
const IN_TURN_BYTES: usize = 128 << 20;

/// What the kernels of one model are made for.
pub struct Model<'a> {
    pub config: LlamaConfig,
    pub device: &'a Device,
    ty: TensorType,
    tiles: Vec<TileVariant>,
}

impl<'a> Model<'a> {
    /// The model with weights of type `ty` and the tiles that the device chooses for it.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub fn new(config: LlamaConfig, ty: TensorType, device: &'a Device) -> Result<Self> {
        let mut model = Self { config, device, ty, tiles: Vec::new() };
        let largest = model.weight(2 * model.config.hidden_size, model.config.d_model)?;
        model.tiles = block_on(kernels::tune(&largest));
        Ok(model)
    }

    /// Matrices of one shape, to be taken in turn.
    ///
    /// # Errors
    /// `UnsupportedModel` for a width without a kernel.
    pub fn weights(&self, rows: usize, columns: usize) -> Result<Vec<BlockWeight>> {
        let first = self.weight(rows, columns)?;
        let count = self.in_turn(first.device_bytes());
        std::iter::once(Ok(first)).chain((1..count).map(|_| self.weight(rows, columns))).collect()
    }

    fn weight(&self, rows: usize, columns: usize) -> Result<BlockWeight> {
        let ty = fitting(self.ty, columns);
        let weight = RandomWeights::new(ty, self.device).matrix("weight", rows, columns)?;
        self.tiles.iter().for_each(|tile| tile.choose_for(&weight));
        Ok(weight)
    }

    fn in_turn(&self, bytes: usize) -> usize {
        (IN_TURN_BYTES / bytes).clamp(1, self.config.num_hidden_layers)
    }

    /// The hidden states of `tokens` tokens.
    ///
    /// # Errors
    /// As [`Model::weights`].
    pub fn stream(&self, tokens: usize) -> Result<ResidualStream> {
        let table =
            RandomWeights::new(TensorType::F32, self.device).matrix("table", tokens.max(32), self.config.d_model)?;
        let ids = self.words((0..tokens as u32).collect(), [1, tokens]);
        Ok(kernels::embed(ids, &table, self.gamma()))
    }

    pub fn gamma(&self) -> Tensor<1> {
        Tensor::ones([self.config.d_model], self.device)
    }

    pub fn epsilon(&self) -> f32 {
        self.config.norm_eps as f32
    }

    /// Cosines and sines of all positions.
    ///
    /// # Errors
    /// None for these shapes.
    pub fn rotations(&self) -> Result<Tensor<3>> {
        let (length, width) = (self.config.max_seq_len, self.config.head_dim());
        let encoding = RotaryEncodingConfig::new(length, width, self.config.rope.clone()).init(self.device)?;
        Ok(encoding.table())
    }

    /// How many tokens came before.
    pub fn position(&self, before: usize) -> Tensor<1, Int> {
        self.words(vec![before as u32], [1])
    }

    pub fn cache_shape(&self) -> CacheShape {
        CacheShape {
            heads: self.config.num_attention_heads,
            kv_heads: self.config.kv_heads(),
            head_dim: self.config.head_dim(),
            max_seq_len: self.config.max_seq_len,
            precision: KvPrecision::F16,
        }
    }

    /// Full caches of one layer each, to be taken in turn. Each word has two halves of 0.5 to 1, or -1 to -0.5.
    pub fn caches(&self) -> Vec<Tensor<5, Int>> {
        let dims = self.cache_shape().dims(1);
        let length = dims.iter().product();
        let words: Vec<u32> = (0..length).map(|i| mixed(i) & 0x83ff_83ff | 0x3800_3800).collect();
        (0..self.in_turn(4 * length)).map(|_| self.words(words.clone(), dims)).collect()
    }

    /// Queries as the projection gives them.
    pub fn queries(&self, tokens: usize) -> Tensor<3> {
        let shape = self.cache_shape();
        self.floats([1, tokens, shape.heads * shape.head_dim], shape.query_scale())
    }

    /// Logits of one token.
    pub fn logits(&self) -> Tensor<3> {
        self.floats([1, 1, self.config.vocab_size], 10.0)
    }

    pub fn words<const D: usize>(&self, words: Vec<u32>, shape: [usize; D]) -> Tensor<D, Int> {
        Tensor::from_data(TensorData::new(words, shape), (self.device, DType::U32))
    }

    /// Numbers of up to `magnitude`, of both signs.
    fn floats(&self, shape: [usize; 3], magnitude: f32) -> Tensor<3> {
        let length = shape.iter().product();
        let unit = |i| (mixed(i) >> 8) as f32 / (1 << 23) as f32 - 1.0;
        let values: Vec<f32> = (0..length).map(|i| unit(i) * magnitude).collect();
        Tensor::from_data(TensorData::new(values, shape), self.device)
    }
}

/// `ty`, or where its blocks do not fill a row of `columns` values the type that llama.cpp's quantizer takes instead.
fn fitting(ty: TensorType, columns: usize) -> TensorType {
    match ty {
        _ if columns.is_multiple_of(ty.block_len()) => ty,
        TensorType::Q4_K => TensorType::Q5_0,
        TensorType::Q5_K => TensorType::Q5_1,
        TensorType::Q6_K => TensorType::Q8_0,
        _ => TensorType::IQ4_NL,
    }
}

/// The `i`-th of some well-mixed numbers (the finalizer of MurmurHash3, Appleby, 2011).
fn mixed(i: usize) -> u32 {
    let mut z = i as u32 ^ 0x9e37_79b9;
    z = (z ^ (z >> 16)).wrapping_mul(0x85eb_ca6b);
    z = (z ^ (z >> 13)).wrapping_mul(0xc2b2_ae35);
    z ^ (z >> 16)
}
