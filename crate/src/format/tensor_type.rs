//! The element types that a tensor in a file can have, and how many bytes their blocks take.
//!
//! What the bytes of a block mean is the business of `quant`; a parser only needs their size.

/// How a tensor's values are stored. Names are ggml's.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TensorType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// 4 bits, one scale for 32 values.
    Q4_0,
    /// 4 bits, a scale and a minimum for 32 values.
    Q4_1,
    /// 5 bits, one scale for 32 values.
    Q5_0,
    /// 5 bits, a scale and a minimum for 32 values.
    Q5_1,
    /// 8 bits, one scale for 32 values.
    Q8_0,
    /// 2 bits, super-blocks of 256 with a scale and a minimum for 16 values.
    Q2_K,
    /// 3 bits, super-blocks of 256 with a scale for 16 values.
    Q3_K,
    /// 4 bits, super-blocks of 256 with a scale and a minimum for 32 values.
    Q4_K,
    /// 5 bits, super-blocks of 256 with a scale and a minimum for 32 values.
    Q5_K,
    /// 6 bits, super-blocks of 256 with a scale for 16 values.
    Q6_K,
    /// 4 bits that index a table of 16 unevenly spaced levels, one scale for 32 values.
    IQ4_NL,
    /// The levels of `IQ4_NL`, super-blocks of 256 with a scale for 32 values.
    IQ4_XS,
    /// The upper half of a single-precision value.
    BF16,
}

impl TensorType {
    /// Every type, in the order of their ggml ids.
    pub const ALL: [TensorType; 15] = [
        TensorType::F32,
        TensorType::F16,
        TensorType::Q4_0,
        TensorType::Q4_1,
        TensorType::Q5_0,
        TensorType::Q5_1,
        TensorType::Q8_0,
        TensorType::Q2_K,
        TensorType::Q3_K,
        TensorType::Q4_K,
        TensorType::Q5_K,
        TensorType::Q6_K,
        TensorType::IQ4_NL,
        TensorType::IQ4_XS,
        TensorType::BF16,
    ];

    /// The type with this id in ggml's numbering (`enum ggml_type`), or `None` for one that Hearth does not read.
    pub fn from_ggml_id(id: u32) -> Option<TensorType> {
        TensorType::ALL.into_iter().find(|ty| ty.ggml_id() == id)
    }

    /// The type with this name, in capitals or not, or `None` for one that Hearth does not read.
    pub fn from_name(name: &str) -> Option<TensorType> {
        TensorType::ALL.into_iter().find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// The id in ggml's numbering (`enum ggml_type`).
    pub const fn ggml_id(self) -> u32 {
        self.layout().0
    }

    /// The name, as ggml and the names of model files spell it.
    pub const fn name(self) -> &'static str {
        self.layout().1
    }

    /// Values in a block.
    pub const fn block_len(self) -> usize {
        self.layout().2
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.layout().3
    }

    /// Bytes of `values` values, or `None` when they are not whole blocks or the bytes overflow.
    pub fn bytes_for(self, values: u64) -> Option<u64> {
        let block_len = self.block_len() as u64;
        if !values.is_multiple_of(block_len) {
            return None;
        }
        (values / block_len).checked_mul(self.block_bytes() as u64)
    }

    /// ggml id, name, values in a block, bytes of a block.
    const fn layout(self) -> (u32, &'static str, usize, usize) {
        match self {
            TensorType::F32 => (0, "F32", 1, 4),
            TensorType::F16 => (1, "F16", 1, 2),
            TensorType::Q4_0 => (2, "Q4_0", 32, 18),
            TensorType::Q4_1 => (3, "Q4_1", 32, 20),
            TensorType::Q5_0 => (6, "Q5_0", 32, 22),
            TensorType::Q5_1 => (7, "Q5_1", 32, 24),
            TensorType::Q8_0 => (8, "Q8_0", 32, 34),
            TensorType::Q2_K => (10, "Q2_K", 256, 84),
            TensorType::Q3_K => (11, "Q3_K", 256, 110),
            TensorType::Q4_K => (12, "Q4_K", 256, 144),
            TensorType::Q5_K => (13, "Q5_K", 256, 176),
            TensorType::Q6_K => (14, "Q6_K", 256, 210),
            TensorType::IQ4_NL => (20, "IQ4_NL", 32, 18),
            TensorType::IQ4_XS => (23, "IQ4_XS", 256, 136),
            TensorType::BF16 => (30, "BF16", 1, 2),
        }
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
