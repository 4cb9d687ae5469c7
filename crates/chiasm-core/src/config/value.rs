//! From JSON to a typed value, or what is wrong with it. One function per kind of setting.
//!
//! No function here changes anything to make it fit: a value is right as a whole or a fault.

use std::time::Duration;

use serde_json::Value;

use super::engine_id::EngineId;
use super::limits::{LONGEST, MAX_INTERFACES, MAX_PATH_BYTES, MAX_REGION_BYTES, SHORTEST};
use super::nixl::{Interfaces, NixlBackend, PortRange, is_interface};
use super::planes::{PlaneChoice, PlaneChoices};
use super::problem::{Fault, Reason};
use super::role::Role;
use crate::allowlist::Allowlist;
use crate::byte_size::ByteSize;
use crate::endpoint::{Host, port_number};
use crate::excerpt::Excerpt;
use crate::limits::MAX_ALLOWED_ENDPOINTS;

/// A value, or all that is wrong with it.
pub(super) type Parsed<T> = Result<T, Vec<Fault>>;

pub(super) fn size(value: &Value) -> Parsed<ByteSize> {
    let size = match value {
        Value::String(text) => ByteSize::parse(text.trim()).ok(),
        _ => whole(value).map(ByteSize),
    };
    let within = |size: &ByteSize| (1..=MAX_REGION_BYTES).contains(&size.0);
    size.filter(within).ok_or_else(|| wrong(value))
}

pub(super) fn switch(value: &Value) -> Parsed<bool> {
    let from_text = |text: &str| match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Some(true),
        "false" | "0" | "no" => Some(false),
        _ => None,
    };
    let on = match value {
        Value::Bool(on) => Some(*on),
        // No word for a boolean is longer; the copy below would be as long as what was given.
        Value::String(text) if text.len() <= 64 => from_text(text),
        Value::Number(number) => match number.as_u64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        _ => None,
    };
    on.ok_or_else(|| wrong(value))
}

pub(super) fn seconds(value: &Value) -> Parsed<Duration> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        // Upstream reads texts too (Python's `float`).
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    // The bounds refuse what is not finite as well.
    let within = |seconds: &f64| (SHORTEST.as_secs_f64()..=LONGEST.as_secs_f64()).contains(seconds);
    seconds.filter(within).map(Duration::from_secs_f64).ok_or_else(|| wrong(value))
}

pub(super) fn peers(value: &Value) -> Parsed<Allowlist> {
    let entries = list(value)?;
    if entries.len() > MAX_ALLOWED_ENDPOINTS {
        return Err(vec![Fault::new(Excerpt::of_json(value), Reason::TooManyEntries)]);
    }
    let (texts, mut faults) = texts(entries);
    let parsed = Allowlist::parse(texts.iter().map(|(_, text)| *text));
    faults.extend(parsed.as_ref().err().into_iter().flatten().map(|error| Fault {
        // The allowlist counts the entries that it was given, from 1.
        entry: texts.get(error.position.saturating_sub(1)).map(|(position, _)| *position),
        given: Some(error.given.clone()),
        reason: Reason::Peer(error.problem.clone()),
    }));
    faults.sort_by_key(|fault| fault.entry);
    parsed.ok().filter(|_| faults.is_empty()).ok_or(faults)
}

pub(super) fn planes(value: &Value) -> Parsed<PlaneChoices> {
    let entries = list(value)?;
    if entries.is_empty() {
        return Err(wrong(value));
    }
    let (texts, mut faults) = texts(entries);
    let mut choices: Vec<PlaneChoice> = Vec::new();
    for (position, text) in texts {
        let reason = match PlaneChoice::from_text(text) {
            None => Reason::Value,
            Some(choice) if choices.iter().any(|known| known.plane == choice.plane) => {
                Reason::Twice
            }
            Some(choice) => {
                choices.push(choice);
                continue;
            }
        };
        faults.push(Fault { entry: Some(position), given: Some(Excerpt::of(text)), reason });
    }
    faults.sort_by_key(|fault| fault.entry);
    if faults.is_empty() { Ok(PlaneChoices(choices)) } else { Err(faults) }
}

pub(super) fn path(value: &Value) -> Parsed<Box<str>> {
    let path = text(value)?;
    let absolute = path.starts_with('/') && path.len() <= MAX_PATH_BYTES && !path.contains('\0');
    absolute.then(|| path.into()).ok_or_else(|| wrong(value))
}

pub(super) fn nixl_backend(value: &Value) -> Parsed<NixlBackend> {
    NixlBackend::from_name(text(value)?).ok_or_else(|| wrong(value))
}

pub(super) fn interfaces(value: &Value) -> Parsed<Interfaces> {
    let entries = list(value)?;
    if entries.len() > MAX_INTERFACES {
        return Err(wrong(value));
    }
    let (texts, mut faults) = texts(entries);
    let bad = texts.iter().filter(|(_, name)| !is_interface(name));
    faults.extend(bad.map(|(position, name)| Fault {
        entry: Some(*position),
        given: Some(Excerpt::of(name)),
        reason: Reason::Value,
    }));
    faults.sort_by_key(|fault| fault.entry);
    if faults.is_empty() {
        Interfaces::new(texts.into_iter().map(|(_, name)| name)).ok_or_else(|| wrong(value))
    } else {
        Err(faults)
    }
}

pub(super) fn port_range(value: &Value) -> Parsed<PortRange> {
    PortRange::from_text(text(value)?).ok_or_else(|| wrong(value))
}

pub(super) fn host(value: &Value) -> Parsed<Host> {
    let text = text(value)?;
    Host::parse(text)
        .map_err(|error| vec![Fault::new(Excerpt::of(text), Reason::Host(error.problem()))])
}

pub(super) fn port(value: &Value) -> Parsed<u16> {
    port_number(text(value)?).ok_or_else(|| wrong(value))
}

pub(super) fn role(value: &Value) -> Parsed<Role> {
    Role::from_name(text(value)?).ok_or_else(|| wrong(value))
}

/// The engine's `null` is the same as no id.
pub(super) fn engine_id(value: &Value) -> Parsed<Option<EngineId>> {
    if value.is_null() {
        return Ok(None);
    }
    EngineId::new(text(value)?).map(Some).ok_or_else(|| wrong(value))
}

/// A whole number, also where somebody wrote it as a fraction (`1e9`): upstream takes that.
fn whole(value: &Value) -> Option<u64> {
    // Above this a fraction no longer says which whole number was meant.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| (0.0..=EXACT).contains(number))?;
        // No rounding, no sign, no overflow: checked by the line above.
        format!("{number:.0}").parse().ok().filter(|_| number.fract() == 0.0)
    })
}

/// A time as people write it: without a fraction where there is none.
pub(super) fn in_seconds(time: Duration) -> Value {
    if time.subsec_nanos() == 0 { time.as_secs().into() } else { time.as_secs_f64().into() }
}

fn list(value: &Value) -> Parsed<&[Value]> {
    match value {
        Value::Array(entries) => Ok(entries),
        _ => Err(vec![Fault::new(Excerpt::of_json(value), Reason::NoList)]),
    }
}

/// The texts among the entries with their positions, counted from 1, and the rest as faults.
fn texts(entries: &[Value]) -> (Vec<(usize, &str)>, Vec<Fault>) {
    let (mut texts, mut faults) = (Vec::new(), Vec::new());
    for (position, entry) in (1..).zip(entries) {
        match entry {
            Value::String(text) => texts.push((position, text.as_str())),
            _ => faults.push(Fault {
                entry: Some(position),
                given: Some(Excerpt::of_json(entry)),
                reason: Reason::Value,
            }),
        }
    }
    (texts, faults)
}

fn text(value: &Value) -> Parsed<&str> {
    value.as_str().ok_or_else(|| wrong(value))
}

fn wrong(value: &Value) -> Vec<Fault> {
    vec![Fault::new(Excerpt::of_json(value), Reason::Value)]
}
