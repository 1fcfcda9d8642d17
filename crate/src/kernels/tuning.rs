//! Which tile the projections are computed with: chosen by CubeCL's tuner among candidates that are all right on every device, once for a matrix's type and shape, and
//! kept in the active CubeCL environment.
//!
//! A device without timers keeps the defaults, which suit a software adapter and are right on all.

use super::BlockWeight;
use super::block_matmul;
use super::products::Tile;
use crate::quant::pack::{PackedCodes, PackedFormat};
use burn::tensor::{Int, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::profile::TimingMethod;
use cubecl::tune::{LocalTuner, Tunable, TunableSet, local_tuner};
use cubecl::{AutotuneKey, CubeTuneId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::{self, Display};
use std::sync::{PoisonError, RwLock};

/// Tokens of the prompt that a tile is chosen for.
const PROMPT: usize = 16;
/// How often the tuner is asked whether it has finished before the defaults are kept; each time the device is waited for.
const PATIENCE: usize = 1000;

/// How a projection's work is shared among units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TileVariant {
    /// Units of a cube.
    pub units: usize,
    /// Units that share a row.
    pub splits: usize,
    /// Rows that a unit computes.
    pub rows: usize,
    /// Tokens that a unit computes.
    pub tokens: usize,
}

impl TileVariant {
    /// The candidates for one token, first the default of all types but F16 and F32. Many rows a unit save loads of activations; several units a row keep a graphics card busy.
    pub const ONE_TOKEN: [TileVariant; 3] = [Self::new(16, 1, 8, 1), Self::new(64, 1, 2, 1), Self::new(64, 8, 2, 1)];
    /// The candidates for a prompt, the default first. A larger tile saves loads, and needs more registers than some graphics cards have.
    pub const PROMPT: [TileVariant; 3] = [Self::new(8, 1, 12, 10), Self::new(16, 1, 8, 8), Self::new(32, 1, 4, 4)];

    const fn new(units: usize, splits: usize, rows: usize, tokens: usize) -> Self {
        Self { units, splits, rows, tokens }
    }

    /// The tile for `format` and a number of tokens: what was chosen, or the default.
    pub(super) fn of(format: PackedFormat, tokens: usize) -> Self {
        let chosen = CHOICES.read().unwrap_or_else(PoisonError::into_inner);
        let chosen = chosen.as_ref().and_then(|choices| choices.get(&(format, tokens > 1)).copied());
        chosen.unwrap_or(match (tokens, format.codes) {
            // What was fastest on software adapters: many rows share activations where weights are dear to decode, fewer where they are dear to load.
            (1, PackedCodes::F16) => Self::new(8, 1, 16, 1),
            (1, PackedCodes::F32) => Self::new(32, 1, 4, 1),
            (1, _) => Self::ONE_TOKEN[0],
            _ => Self::PROMPT[0],
        })
    }

    /// Uses this tile for `weight`'s formats from now on.
    pub fn choose_for(self, weight: &BlockWeight) {
        let mut choices = CHOICES.write().unwrap_or_else(PoisonError::into_inner);
        for part in weight.parts() {
            choices.get_or_insert_default().insert((part.shape().packed(), self.tokens > 1), self);
        }
    }
}

impl Display for TileVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { units, splits, rows, tokens } = self;
        write!(f, "units{units}_splits{splits}_rows{rows}_tokens{tokens}")
    }
}

/// What was chosen, for a format, for prompts or for single tokens.
static CHOICES: RwLock<Option<HashMap<(PackedFormat, bool), TileVariant>>> = RwLock::new(None);

/// What a choice is kept under.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, AutotuneKey)]
struct TileKey {
    /// The tensor type.
    ty: String,
    rows: usize,
    columns: usize,
    prompt: bool,
}

/// A product to be timed.
#[derive(Clone)]
struct Product {
    x: CubeTensor,
    words: CubeTensor,
    scales: CubeTensor,
    shape: super::BlockShape,
    y: CubeTensor,
}

impl Product {
    fn key(&self) -> TileKey {
        let (rows, columns) = (self.shape.rows, self.shape.columns);
        TileKey { ty: self.shape.ty.name().to_owned(), rows, columns, prompt: self.x.meta.shape()[1] > 1 }
    }

    fn run(self, variant: TileVariant) -> Result<(), String> {
        let tile = Tile::of(self.shape, variant);
        block_matmul::launch_tile(&self.x, self.words, self.scales, self.shape, 0, &self.y, None, tile);
        Ok(())
    }
}

/// Lets the tuner choose the tiles for `weight`'s first part, for single tokens and for prompts. None are where it cannot measure. They are
/// used where [`TileVariant::choose_for`] says so.
pub async fn tune(weight: &BlockWeight) -> Vec<TileVariant> {
    let mut chosen = Vec::new();
    let Some(part) = weight.parts().first() else { return chosen };
    let shape = part.shape();
    let device = part.words().device();
    for tokens in [1, PROMPT] {
        let x = Tensor::<3>::ones([1, tokens, shape.columns], &device);
        let y = Tensor::<3>::zeros([1, tokens, shape.rows], &device);
        let (Some(x), Some(y), Some(words), Some(scales)) = (float(x), float(y), int(part.words()), int(part.scales()))
        else {
            return chosen;
        };
        let product = Product { x, words, scales, shape, y };
        let candidates: &[TileVariant] = if tokens > 1 { &TileVariant::PROMPT } else { &TileVariant::ONE_TOKEN };
        chosen.extend(fastest(product, candidates).await);
    }
    chosen
}

async fn fastest(product: Product, candidates: &'static [TileVariant]) -> Option<TileVariant> {
    static ONE_TOKEN: LocalTuner<TileKey, CubeTuneId> = local_tuner!("one_token");
    static PROMPT: LocalTuner<TileKey, CubeTuneId> = local_tuner!("prompt");
    let client = product.x.client.clone();
    // In a browser a tuner without timers of the device's own panics.
    if client.properties().timing_method != TimingMethod::Device {
        return None;
    }
    let id = CubeTuneId::new(&client, &product.x.device);
    let key = product.key();
    let tuner = if key.prompt { &PROMPT } else { &ONE_TOKEN };
    let set = tuner.init(&id, move || {
        let set = TunableSet::new(Product::key, |_: &TileKey, product: &Product| product.clone());
        candidates.iter().fold(set, |set, variant| {
            let variant = *variant;
            set.with(Tunable::identified(variant, move |product: Product| product.run(variant)))
        })
    });
    tuner.execute(&id, &client, set.clone(), product);
    for _ in 0..PATIENCE {
        if let Some(variant) = tuner.fastest_identity(&id, &set, &key) {
            return Some(variant);
        }
        client.sync().await.ok()?;
    }
    None
}

fn float(tensor: Tensor<3>) -> Option<CubeTensor> {
    tensor.try_into_primitive::<CubeBackend>().ok()
}

fn int(tensor: Tensor<1, Int>) -> Option<CubeTensor> {
    tensor.try_into_primitive::<CubeBackend>().ok()
}
