//! Any JSON value, by choices.

use serde_json::{Map, Value};

use crate::input::Input;

/// Numbers and texts that are read in more than one way.
const ODD: &[&str] = &[
    "",
    " ",
    "0",
    "-1",
    "1",
    "true",
    "null",
    "5601",
    " 5601 ",
    "5_601",
    "0x15e1",
    "٣",
    "4GiB",
    "1e3",
    "10.0.0.1:5601",
    "[::1]:5601",
    "localhost",
    "*",
    "shm",
    "nixl required",
    "ec_both",
    "float32",
];

/// A value whose members are named out of `names`, or not; at most `depth` levels.
pub(crate) fn value(input: &mut Input<'_>, names: &[&str], depth: u8) -> Value {
    match input.below(if depth == 0 { 7 } else { 9 }) {
        0 => Value::Null,
        1 => Value::Bool(input.flag()),
        2 => Value::from(input.size()),
        3 => Value::from(i64::from_le_bytes(input.number().to_le_bytes())),
        4 => Value::from(f64::from_bits(input.number())),
        5 => Value::from(*input.pick(ODD)),
        6 => Value::from(input.text(40)),
        7 => (0..input.below(6)).map(|_| value(input, names, depth - 1)).collect(),
        _ => Value::Object(object(input, names, depth - 1)),
    }
}

/// As many as 15 members.
pub(crate) fn object(input: &mut Input<'_>, names: &[&str], depth: u8) -> Map<String, Value> {
    (0..input.below(16))
        .map(|_| {
            let is_known = !names.is_empty() && input.byte() < 230;
            let name = if is_known { (*input.pick(names)).to_owned() } else { input.text(30) };
            (name, value(input, names, depth))
        })
        .collect()
}
