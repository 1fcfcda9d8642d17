//! `cargo bench`: times every kernel on the GPU for the shapes of well-known models, each as a share of what the device can do at most.
//!
//! ```text
//! cargo bench -- --quant q4_0 --shape llama-3.2-1b --filter head --json rates.json
//! ```

#[path = "../../tests/suite/bare.rs"]
mod bare;
mod bounds;
mod cases;
mod model;
mod report;
mod timing;

use bounds::Bounds;
use cases::{Case, KERNELS};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use cubecl::future::block_on;
use hearth::error::{Error, Result};
use hearth::format::TensorType;
use hearth::models::llama::LlamaConfig;
use model::Model;
use report::{Report, Row};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use timing::Timed;

/// Tokens that the caches hold.
const MAX_SEQ_LEN: usize = 2048;

/// Time every kernel on the GPU.
#[derive(Parser)]
#[command(name = "kernels", bin_name = "cargo bench --")]
struct Arguments {
    /// A model whose shape the kernels are given; may be repeated.
    #[arg(long = "shape", default_values = LlamaConfig::SHAPES, value_parser = PossibleValuesParser::new(LlamaConfig::SHAPES))]
    shapes: Vec<String>,
    /// The type of the weights, such as q4_k.
    #[arg(long, default_value = "q4_k", value_parser = tensor_type)]
    quant: TensorType,
    /// Times only the kernels whose names contain this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Writes the figures to this file too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Cargo gives it.
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

fn tensor_type(name: &str) -> std::result::Result<TensorType, &'static str> {
    TensorType::from_name(name).ok_or("no type of GGUF matrices has this name")
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error [{}]: {error}", error.code());
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let device = block_on(hearth::device::open())?;
    let client = burn_cubecl::CubeDevice::Wgpu(Default::default()).client();
    let (name, backend) = (client.properties().identity.name.clone(), client.name().to_owned());
    let mut bounds = Bounds::new(&client)?;
    let bounds_per_second = bounds.rates()?;
    println!("{name}, {backend}");
    println!("plain copy      {:>8.3} GB/s read and written", bounds_per_second.copied_bytes / 1e9);
    println!("bare q4 kernel  {:>8.3} G multiply-adds/s", bounds_per_second.bare_multiply_adds / 1e9);
    println!("Both are timed again in turn with each kernel, and the shares are of that.");

    let mut rows = Vec::new();
    for shape in &arguments.shapes {
        let Some(config) = LlamaConfig::of_shape(shape) else { continue };
        let model = Model::new(config.with_max_seq_len(MAX_SEQ_LEN), arguments.quant, &device)?;
        println!("\n{shape}\n{}", Row::header());
        for kernel in KERNELS.iter().filter(|kernel| kernel.name.contains(&arguments.filter)) {
            for size in kernel.sizes {
                let Case { work, launch } = (kernel.prepare)(&model, *size)?;
                let mut timed = Timed::new(launch)?;
                let (seconds, rates) = bounds.beside(&mut timed)?;
                let row = Row::new(shape, kernel, *size, work, seconds, rates);
                println!("{}", row.line());
                rows.push(row);
                // The next kernel's buffers take the place of this one's.
                drop(timed);
                client.memory_cleanup().map_err(|error| Error::Device(error.to_string()))?;
            }
        }
    }
    match &arguments.json {
        Some(path) => write_json(path, &Report { device: name, backend, bounds_per_second, kernels: rows }),
        None => Ok(()),
    }
}

fn write_json(path: &Path, report: &Report) -> Result<()> {
    let failed = |reason: String| Error::Io { path: path.display().to_string(), reason };
    let text = serde_json::to_string_pretty(report).map_err(|error| failed(error.to_string()))?;
    std::fs::write(path, text + "\n").map_err(|error| failed(error.to_string()))
}
