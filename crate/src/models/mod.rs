//! Model architectures as Burn modules, and the layers that they share.

pub mod layers;
pub mod llama;
#[cfg(not(target_arch = "wasm32"))]
mod random;
mod weights;

#[cfg(not(target_arch = "wasm32"))]
pub use random::RandomWeights;
pub use weights::{LoadedWeights, WeightSource, Zeros};
