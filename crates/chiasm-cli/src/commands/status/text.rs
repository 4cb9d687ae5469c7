//! The status for people. Fields are taken as they come: the node may be of another version.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::commands::table;

/// One row for each node.
pub(super) fn overview(reports: &[Value]) -> String {
    if reports.is_empty() {
        return "no node of this user is running".to_owned();
    }
    let columns =
        ["node", "endpoint", "process", "up s", "blocks", "free", "grants", "waiting", "state"];
    let numbers = ["process", "up s", "blocks", "free", "grants", "waiting"];
    let mut table = table::table(&columns, &numbers);
    for report in reports {
        let state = if report["node"]["draining"] == true { "draining" } else { "" };
        table.add_row([
            name(report),
            text(&report["node"]["endpoint"]),
            text(&report["node"]["process"]),
            text(&report["node"]["uptime_s"]),
            text(&report["blocks"]["total"]),
            text(&report["blocks"]["free"]),
            text(&report["serving"]["grants"]),
            text(&report["reading"]["waiting_items"]),
            state.to_owned(),
        ]);
    }
    table.trim_fmt()
}

/// `chiasm-0123 (10.0.0.5:5601)`.
pub(super) fn name_and_endpoint(report: &Value) -> String {
    match report["node"]["endpoint"].as_str() {
        Some(endpoint) => format!("{} ({endpoint})", name(report)),
        None => name(report),
    }
}

/// Everything about one node, a group of fields on each line.
pub(super) fn report(report: &Value) -> String {
    let (serving, reading) = (&report["serving"], &report["reading"]);
    let mut out = name(report);
    let mut line = |head: &str, rest: String| {
        let _ = write!(out, "\n  {head:<9}{rest}");
    };
    line("node", scalars(&report["node"], &["endpoint", "process", "uptime_s"]));
    line("region", scalars(&report["region"], &["path", "bytes"]));
    line("blocks", scalars(&report["blocks"], &["total", "free", "live", "evictable"]));
    line("entries", scalars(&report["entries"], &["total", "pinned"]));
    line("serving", scalars(serving, &["grants", "pinned_blocks", "connections", "streams"]));
    for peer in rows(&serving["peers"]) {
        line("", format!("peer: {}", scalars(peer, &[])));
    }
    line("", format!("so far: {}", counted(&serving["counters"])));
    line("reading", scalars(reading, &["requests", "waiting_items", "reads", "transfers"]));
    for producer in rows(&reading["producers"]) {
        line("", format!("producer: {}", scalars(producer, &["endpoint", "link"])));
    }
    line("", format!("so far: {}", counted(&reading["counters"])));
    // A node of an earlier version does not say.
    let dispatch = &report["dispatch"];
    if dispatch.is_object() {
        line("dispatch", scalars(dispatch, &["saves", "loads"]));
        line("", format!("so far: {}", counted(&dispatch["counters"])));
    }
    out
}

fn name(report: &Value) -> String {
    let path = report["region"]["path"].as_str().unwrap_or_default();
    let file = Path::new(path).file_name().unwrap_or_default();
    file.to_string_lossy().into_owned()
}

fn rows(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.1}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// `name value, name value`: the fields of an object that are neither lists nor objects, these
/// `first`.
fn scalars(object: &Value, first: &[&str]) -> String {
    let mut fields: Vec<(&String, &Value)> = object.as_object().into_iter().flatten().collect();
    fields.retain(|(_, value)| !value.is_object() && !value.is_array());
    // Lists are seldom so long that rows are left out.
    fields.retain(|(key, value)| !key.ends_with("_left_out") || **value != 0);
    // Stable: the others stay in the order of their names.
    fields.sort_by_key(|(key, _)| first.iter().position(|name| name == key).unwrap_or(first.len()));
    let shown = fields.iter().map(|(key, value)| format!("{key} {}", text(value)));
    shown.collect::<Vec<_>>().join(", ")
}

/// The same for counters, those in objects too, without those that are zero.
fn counted(object: &Value) -> String {
    let mut found = Vec::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        let inner: Vec<(&String, &Value)> = value.as_object().into_iter().flatten().collect();
        if inner.is_empty() && value.as_u64().is_some_and(|count| count > 0) {
            found.push(format!("{key} {value}"));
        }
        let counts = inner.into_iter().filter(|(_, count)| count.as_u64().is_some_and(|n| n > 0));
        found.extend(counts.map(|(word, count)| format!("{key} {word} {count}")));
    }
    if found.is_empty() { "nothing".to_owned() } else { found.join(", ") }
}
