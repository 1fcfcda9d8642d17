//! Takes a model file's bytes as they arrive.

use super::engine::SharedModel;
use crate::device;
use crate::error::{Error, Result};
use crate::inference::ModelLoader;
use js_sys::Function;
use std::cell::RefCell;
use wasm_bindgen::prelude::*;

/// Bytes that may be on their way to the GPU before [`Loader::push`] waits for it.
const UPLOAD_WINDOW: usize = 16 << 20;

/// Loads one model; made by `Engine.startLoad`.
#[wasm_bindgen]
pub struct Loader {
    state: RefCell<State>,
    model: SharedModel,
}

struct State {
    /// Absent while a call uses it, and after an error or the end.
    loader: Option<ModelLoader>,
    /// Bytes since the GPU was last waited for.
    in_flight: usize,
}

impl Loader {
    pub(super) fn new(loader: ModelLoader, model: SharedModel) -> Self {
        Self { state: RefCell::new(State { loader: Some(loader), in_flight: 0 }), model }
    }

    fn take(&self) -> Result<ModelLoader> {
        self.state
            .borrow_mut()
            .loader
            .take()
            .ok_or_else(|| Error::Busy("this load has ended or failed: start another".into()))
    }
}

#[wasm_bindgen]
impl Loader {
    /// Takes the file's next bytes, and resolves when there is room for more.
    pub async fn push(&self, bytes: &[u8]) -> Result<(), JsValue> {
        let mut loader = self.take()?;
        loader.push(bytes)?;
        let full = {
            let mut state = self.state.borrow_mut();
            state.loader = Some(loader);
            state.in_flight += bytes.len();
            state.in_flight >= UPLOAD_WINDOW
        };
        if full {
            self.state.borrow_mut().in_flight = 0;
            device::sync_gpu().await?;
        }
        Ok(())
    }

    /// Ends the load: checks that the file was whole, waits for the upload, compiles the pipelines. `onPhase` gets `(phase, done, total)`.
    /// Resolves to the model's description.
    pub async fn finish(&self, on_phase: Function) -> Result<JsValue, JsValue> {
        let loader = self.take()?;
        // A listener's own exception must not undo a load.
        let phase = |name: &str, done: u32| {
            let _ = on_phase.call3(&JsValue::NULL, &name.into(), &done.into(), &1.into());
        };
        phase("uploading", 0);
        let mut llama = loader.finish()?;
        device::sync_gpu().await?;
        phase("uploading", 1);
        phase("warming up", 0);
        llama.warm_up().await?;
        phase("warming up", 1);
        let info = serde_wasm_bindgen::to_value(llama.info())?;
        *self.model.borrow_mut() = Some(llama);
        Ok(info)
    }
}
