//! The JavaScript surface: an engine, a loader, and errors with codes. It converts values and holds no logic of its own.
//!
//! All methods take `&self`: an asynchronous one that is waiting for the GPU must not keep `cancel` from being called.

mod engine;
mod error;
mod loader;

pub use engine::Engine;
pub use loader::Loader;

use wasm_bindgen::prelude::*;

/// Runs when the module is instantiated, before any export.
#[wasm_bindgen(start)]
pub fn start() {
    crate::device::run_constructors();
    console_error_panic_hook::set_once();
}
