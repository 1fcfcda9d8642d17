//! What was measured, as a table while it is, and as JSON.

use crate::bounds::Rates;
use crate::cases::{Kernel, Work};
use hearth::format::TensorType;
use serde::Serialize;

/// One kernel at one size.
#[derive(Debug, Serialize)]
pub struct Row {
    pub shape: String,
    pub kernel: &'static str,
    /// What `size` counts.
    pub unit: &'static str,
    pub size: usize,
    /// How its weights are encoded; absent where it has none.
    pub quant: Option<&'static str>,
    pub milliseconds: f64,
    /// Absent where a kernel has none.
    pub multiply_adds_per_second: Option<f64>,
    pub share_of_bare: Option<f64>,
    pub bytes_per_second: f64,
    pub share_of_copy: f64,
}

impl Row {
    /// A kernel whose launch took `seconds`, with the `bounds` that were measured beside it.
    pub fn new(shape: &str, kernel: &Kernel, size: usize, work: Work, seconds: f64, bounds: Rates) -> Self {
        let multiply_adds = (work.multiply_adds > 0).then(|| work.multiply_adds as f64 / seconds);
        let bytes = work.bytes as f64 / seconds;
        Self {
            shape: shape.to_owned(),
            kernel: kernel.name,
            unit: kernel.unit,
            size,
            quant: work.ty.map(TensorType::name),
            milliseconds: seconds * 1e3,
            multiply_adds_per_second: multiply_adds,
            share_of_bare: multiply_adds.map(|rate| rate / bounds.bare_multiply_adds),
            bytes_per_second: bytes,
            share_of_copy: bytes / bounds.copied_bytes,
        }
    }

    /// The titles above the rows of a shape.
    pub fn header() -> String {
        let (computed, moved) = ("G madd/s", "GB/s");
        format!(
            "{:<17} {:>12}  {:<6} {:>10} {computed:>10} {:>7} {moved:>9} {:>7}",
            "kernel", "size", "type", "ms", "of bare", "of copy"
        )
    }

    /// The row of the table.
    pub fn line(&self) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        format!(
            "{:<17} {:>12}  {:<6} {:>10.4} {:>10} {:>7} {:>9.3} {:>7}",
            self.kernel,
            format!("{} {}", self.size, self.unit),
            self.quant.unwrap_or("-"),
            self.milliseconds,
            or_dash(self.multiply_adds_per_second.map(|rate| format!("{:.3}", rate / 1e9))),
            or_dash(self.share_of_bare.map(percent)),
            self.bytes_per_second / 1e9,
            percent(self.share_of_copy),
        )
    }
}

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub device: String,
    pub backend: String,
    /// Before the first kernel. A kernel's shares are of bounds that were measured beside it.
    pub bounds_per_second: Rates,
    pub kernels: Vec<Row>,
}
