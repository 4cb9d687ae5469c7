//! What a client's `ec_transfer_params` say about one item.
//!
//! The object has come through Python and may be anything: other types, numbers of any size, text that is
//! no Unicode, arrays of millions. Only what an announcement consists of is looked at, each part at a
//! cost that does not depend on what was sent, and nothing of it is ever an exception. Whether it is a
//! valid announcement is decided by [`Announcement::parse`] alone.

use chiasm_core::announcement::{Announcement, AnnouncementError};
use chiasm_core::excerpt::Excerpt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// Longest text that is looked at, in characters. A host has at most 253; what is longer is invalid, and
/// what is left of it is as well.
const MAX_CHARS: usize = 1024;

/// The announcement of `identifier`, if there is one.
pub(crate) fn announcement(
    params: &Bound<'_, PyAny>,
    identifier: &Bound<'_, PyString>,
) -> Option<Result<Announcement, AnnouncementError>> {
    let params = params.cast::<PyDict>().ok()?;
    // An error is that of a key of somebody's own making, which no JSON has.
    let value = params.get_item(identifier).ok()??;
    Some(parse(&value))
}

fn parse(value: &Bound<'_, PyAny>) -> Result<Announcement, AnnouncementError> {
    let Ok(given) = value.cast::<PyDict>() else {
        return Err(AnnouncementError::NotAnObject { found: Excerpt::of_json(&scalar(value)) });
    };
    let mut fields = Map::new();
    for name in ["peer_host", "peer_port", "size_bytes"] {
        if let Ok(Some(field)) = given.get_item(name) {
            fields.insert(name.into(), scalar(&field));
        }
    }
    let mut dims = None;
    if let Ok(Some(shape)) = given.get_item("shape") {
        dims = length(&shape);
        fields.insert("shape".into(), array(&shape));
    }
    match (Announcement::parse(&Value::Object(fields)), dims) {
        (Err(AnnouncementError::ShapeLength { .. }), Some(dims)) => {
            Err(AnnouncementError::ShapeLength { dims })
        }
        (parsed, _) => parsed,
    }
}

/// How many elements a list or a tuple has.
fn length(value: &Bound<'_, PyAny>) -> Option<usize> {
    let list = value.cast::<PyList>().map(PyListMethods::len);
    list.or_else(|_| value.cast::<PyTuple>().map(PyTupleMethods::len)).ok()
}

/// A list or a tuple with its first three elements: enough for one of two, or to see that it is none.
/// Anything else as [`scalar`].
fn array(value: &Bound<'_, PyAny>) -> Value {
    let Some(elements) = length(value) else { return scalar(value) };
    let element = |at| value.get_item(at).map_or(Value::Null, |element| scalar(&element));
    (0..elements.min(3)).map(element).collect()
}

/// A number, a text, a truth value or nothing, as JSON has it. Whatever else it is, or is too large to be
/// valid anywhere, becomes a text that says so; such a text has a space in it and is no host.
fn scalar(value: &Bound<'_, PyAny>) -> Value {
    if value.is_none() {
        return Value::Null;
    }
    // Before the number: a truth value is one in Python.
    if let Ok(truth) = value.cast::<PyBool>() {
        return Value::Bool(truth.is_true());
    }
    if let Ok(number) = value.cast::<PyInt>() {
        let number = number.extract::<u64>().map(Number::from);
        let number = number.or_else(|_| value.extract::<i64>().map(Number::from));
        return number.map_or_else(|_| "a number past 64 bits".into(), Value::Number);
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        let finite = Number::from_f64(number.value());
        return finite.map_or_else(|| "a number that is not finite".into(), Value::Number);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return string(text);
    }
    if let Some(elements) = length(value) {
        return format!("an array of {elements}").into();
    }
    if let Ok(members) = value.cast::<PyDict>() {
        return format!("an object of {}", members.len()).into();
    }
    "a value that JSON does not have".into()
}

fn string(text: &Bound<'_, PyString>) -> Value {
    let length = text.len().unwrap_or(usize::MAX);
    if length > MAX_CHARS {
        return format!("a text of {length} characters").into();
    }
    text.to_str().map_or_else(|_| "a text that is no Unicode".into(), Value::from)
}
