//! Model architectures as Burn modules, and the layers that they share.

pub mod layers;
pub mod llama;
mod weights;

pub use weights::{LoadedWeights, WeightSource, Zeros};
