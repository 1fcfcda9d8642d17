//! Rotary positions: the angles' cosines and sines, computed once on the host in the precision that the references use.

use super::config::RopeConfig;
use crate::error::{Error, Result};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use std::f64::consts::PI;

/// Configuration of a [`RotaryEncoding`].
#[derive(Config, Debug)]
pub struct RotaryEncodingConfig {
    /// Positions that the table covers.
    pub max_seq_len: usize,
    /// Values of a head that rotate, an even number.
    pub rotary_dim: usize,
    /// Base frequency and scaling.
    pub rope: RopeConfig,
}

/// Rotary position embedding (Su et al., 2021) from a table.
///
/// It rotates pairs `(2 i, 2 i + 1)`, for which the rows of a llama GGUF's query and key projections are permuted; the kernel of these projections does it.
#[derive(Module, Debug)]
pub struct RotaryEncoding {
    /// `[max_seq_len, rotary_dim / 2, 2]`: the cosine and the sine of `position · frequency`.
    table: Tensor<3>,
}

impl RotaryEncodingConfig {
    /// The table on `device`.
    ///
    /// # Errors
    /// `InvalidFile` when the configuration's frequency factors do not fit the rotary dimension.
    pub fn init(&self, device: &Device) -> Result<RotaryEncoding> {
        let frequencies = self.frequencies()?;
        let mut table = Vec::with_capacity(self.max_seq_len * self.rotary_dim);
        for position in 0..self.max_seq_len {
            for frequency in &frequencies {
                // The angle is rounded to f32 as in the reference implementation; its cosine and sine are then exact to the last bit or so.
                let angle = f64::from(position as f32 * frequency);
                table.extend([angle.cos() as f32, angle.sin() as f32]);
            }
        }
        let data = TensorData::new(table, [self.max_seq_len, frequencies.len(), 2]);
        let table = device.memory_persistent_allocations(data, |data| Tensor::from_data(data, device));
        Ok(RotaryEncoding { table })
    }

    /// `theta^(-2 i / rotary_dim)`, scaled as the configuration says; `[rotary_dim / 2]`.
    fn frequencies(&self) -> Result<Vec<f32>> {
        let half = self.rotary_dim / 2;
        let base = (0..half).map(|i| (1.0 / self.rope.theta.powf((2 * i) as f64 / self.rotary_dim as f64)) as f32);
        let scaled: Vec<f32> = match &self.rope.scaled {
            None => base.collect(),
            Some(scaling) => base.map(|frequency| scaling.apply(frequency)).collect(),
        };
        if self.rope.factors.is_empty() {
            return Ok(scaled);
        }
        if self.rope.factors.len() != half || self.rope.factors.contains(&0.0) {
            return Err(Error::InvalidFile {
                format: "GGUF",
                field: "tensor \"rope_freqs.weight\"".into(),
                reason: format!("{} factors for {half} frequencies, none of which may be 0", self.rope.factors.len()),
            });
        }
        Ok(scaled.iter().zip(&self.rope.factors).map(|(frequency, factor)| frequency / factor).collect())
    }
}

impl super::RopeFrequencyScaling {
    /// Llama 3's frequency scaling: high frequencies stay, low ones are divided by the factor, those between are interpolated.
    pub fn apply(&self, frequency: f32) -> f32 {
        let frequency = f64::from(frequency);
        let wavelength = 2.0 * PI / frequency;
        let original = self.old_context_len as f64;
        let (low, high) = (self.low_freq_factor, self.high_freq_factor);
        let scaled = if wavelength < original / high {
            frequency
        } else if wavelength > original / low {
            frequency / self.scale_factor
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            (1.0 - smooth) * frequency / self.scale_factor + smooth * frequency
        };
        scaled as f32
    }
}

impl RotaryEncoding {
    /// `[max_seq_len, rotary_dim / 2, 2]`: the cosine and the sine of every angle.
    pub fn table(&self) -> Tensor<3> {
        self.table.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::RopeFrequencyScaling;
    use super::*;

    /// Values that transformers' `_compute_llama3_parameters` defines: unchanged, divided by 32, and between.
    #[test]
    fn llama3_scaling_keeps_high_and_divides_low_frequencies() {
        let scaling = RopeFrequencyScaling::new().with_scale_factor(32.0);
        assert_eq!(scaling.apply(1.0), 1.0);
        assert_eq!(scaling.apply(1e-5), (1e-5f32 as f64 / 32.0) as f32);
        let between = scaling.apply(2.0 * PI as f32 / 4096.0);
        let unscaled = 2.0 * PI as f32 / 4096.0;
        assert!(between < unscaled && between > unscaled / 32.0);
    }

    #[test]
    fn frequency_factors_that_do_not_fit_are_refused() {
        let rope = RopeConfig::new().with_factors(vec![1.0; 3]);
        let error = RotaryEncodingConfig::new(4, 64, rope).frequencies().unwrap_err();
        assert!(error.to_string().contains("rope_freqs"), "{error}");
    }
}
