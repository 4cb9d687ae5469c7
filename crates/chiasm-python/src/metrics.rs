//! Counters and gauges of a node, by name: those of [`chiasm_node::metrics`].
//!
//! A value that has a label is called `name/label`; no name and no label has a `/`. Of a histogram there
//! are its sum and its count: what reads them in vLLM takes no steps.

use chiasm_core::latency::LatencyHistogram;
use chiasm_node::Node;
use chiasm_node::metrics::{Family, Kind, Metrics, Value};

/// One metric: its name, kind, label and meaning.
pub(crate) type Metric = (String, &'static str, Option<&'static str>, String);

/// Every metric.
pub(crate) fn table() -> Vec<Metric> {
    let mut all = Vec::new();
    for Family { name, kind, help, label, .. } in Metrics::default().families() {
        match kind {
            Kind::Counter => all.push((total(name), "counter", label, format!("{help}."))),
            Kind::Gauge => all.push((name.to_owned(), "gauge", label, format!("{help}."))),
            Kind::Histogram => {
                all.push((total(name), "counter", label, format!("{help}: the sum.")));
                all.push((count(name), "counter", label, format!("{help}: how many.")));
            }
        }
    }
    all
}

/// The values of a node, in the order of the table.
#[expect(clippy::cast_precision_loss, reason = "counters are shown, not counted with")]
pub(crate) fn of(node: &Node) -> Vec<(String, f64)> {
    let mut values = Vec::new();
    let mut add = |name: String, label: &str, value: f64| {
        let full = if label.is_empty() { name } else { format!("{name}/{label}") };
        values.push((full, value));
    };
    for Family { name, kind, samples, .. } in node.metrics().families() {
        for sample in samples {
            match (kind, sample.value) {
                (Kind::Gauge, Value::Count(value)) => add(name.into(), sample.label, value as f64),
                (_, Value::Count(value)) => add(total(name), sample.label, value as f64),
                (_, Value::Latency(latency)) => {
                    add(total(name), sample.label, seconds(&latency));
                    add(count(name), sample.label, latency.count() as f64);
                }
            }
        }
    }
    values
}

fn seconds(latency: &LatencyHistogram) -> f64 {
    latency.sum().as_secs_f64()
}

fn total(name: &str) -> String {
    format!("{name}_total")
}

fn count(name: &str) -> String {
    format!("{}_count_total", name.trim_end_matches("_seconds"))
}
