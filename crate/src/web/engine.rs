//! One device with one model on it.

use super::error::invalid;
use super::loader::Loader;
use crate::device::{self, DeviceInfo};
use crate::error::{Error, Result};
use crate::generation::CancelToken;
use crate::inference::{ChatPrompt, GenerationEvent, GenerationOptions, Llama, LoadOptions, ModelLoader};
use crate::tokenizer::BpeTokenizer;
use burn::tensor::Device;
use js_sys::Function;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wasm_bindgen::prelude::*;

/// The engine's model: absent before it is loaded, and while it answers.
pub(super) type SharedModel = Rc<RefCell<Option<Llama<BpeTokenizer>>>>;

/// Opens a device, loads a model onto it, answers.
#[wasm_bindgen]
pub struct Engine {
    device: Device,
    model: SharedModel,
    cancel: CancelToken,
    answering: Cell<bool>,
}

#[wasm_bindgen]
impl Engine {
    /// Opens the WebGPU device.
    pub async fn open() -> Result<Engine, JsValue> {
        let device = device::open().await?;
        Ok(Engine {
            device,
            model: SharedModel::default(),
            cancel: CancelToken::default(),
            answering: Cell::new(false),
        })
    }

    /// What the device can do.
    #[wasm_bindgen(getter)]
    pub fn info(&self) -> Result<JsValue, JsValue> {
        Ok(serde_wasm_bindgen::to_value(&DeviceInfo::of_gpu())?)
    }

    /// Begins to load a model of up to `contextLength` tokens (2,048 when absent); the one before is dropped.
    #[wasm_bindgen(js_name = startLoad)]
    pub fn start_load(&self, context_length: Option<u32>) -> Result<Loader, JsValue> {
        if self.answering.get() {
            return Err(busy().into());
        }
        *self.model.borrow_mut() = None;
        self.device.memory_cleanup();
        let mut options = LoadOptions::default();
        if let Some(length) = context_length {
            options.max_seq_len = length as usize;
        }
        Ok(Loader::new(ModelLoader::new(&self.device, options), self.model.clone()))
    }

    /// Answers `request` (`messages`, `now`, and what `GenerationOptions` takes). `onDelta` gets `(text, tokens)` for every token, `onPrefill`
    /// before that `(done, total)` of the prompt's tokens. Resolves to the finish reason, the usage and the timings.
    pub async fn chat(
        &self,
        request: JsValue,
        on_delta: Function,
        on_prefill: Option<Function>,
    ) -> Result<JsValue, JsValue> {
        let prompt: ChatPrompt =
            serde_wasm_bindgen::from_value(request.clone()).map_err(|error| invalid("request", error))?;
        let options: GenerationOptions =
            serde_wasm_bindgen::from_value(request).map_err(|error| invalid("request", error))?;
        let mut llama = self.take_model()?;
        self.cancel.clear();
        let completion = llama
            .chat(&prompt, &options, &self.cancel, |event| {
                // A listener's own exception must not end the answer.
                let _ = match (event, &on_prefill) {
                    (GenerationEvent::Text { text, tokens }, _) => {
                        on_delta.call2(&JsValue::NULL, &text.into(), &(tokens as u32).into())
                    }
                    (GenerationEvent::Prefill { done, total }, Some(on_prefill)) => {
                        on_prefill.call2(&JsValue::NULL, &(done as u32).into(), &(total as u32).into())
                    }
                    (GenerationEvent::Prefill { .. }, None) => return,
                };
            })
            .await;
        *self.model.borrow_mut() = Some(llama);
        self.answering.set(false);
        Ok(serde_wasm_bindgen::to_value(&completion?)?)
    }

    /// Stops the answer that is being generated, within a token.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Forgets the conversation.
    pub fn reset(&self) -> Result<(), JsValue> {
        match self.model.borrow_mut().as_mut() {
            Some(llama) => llama.reset(),
            None if self.answering.get() => return Err(busy().into()),
            None => {}
        }
        Ok(())
    }
}

impl Engine {
    fn take_model(&self) -> Result<Llama<BpeTokenizer>> {
        if self.answering.get() {
            return Err(busy());
        }
        let llama = self.model.borrow_mut().take().ok_or(Error::NoModel)?;
        self.answering.set(true);
        Ok(llama)
    }
}

fn busy() -> Error {
    Error::Busy("an answer is being generated: wait for it or cancel it".into())
}
