//! The crate's errors as JavaScript `Error` objects with a `code`.

use crate::error::Error;
use js_sys::Reflect;
use wasm_bindgen::JsValue;

impl From<Error> for JsValue {
    fn from(error: Error) -> Self {
        let object = js_sys::Error::new(&error.to_string());
        // Setting a property of a fresh object cannot fail.
        let _ = Reflect::set(&object, &"code".into(), &error.code().into());
        object.into()
    }
}

/// A value from JavaScript that has not the shape it should have.
pub(super) fn invalid(name: &'static str, error: serde_wasm_bindgen::Error) -> Error {
    Error::InvalidParameter { name, reason: error.to_string() }
}
