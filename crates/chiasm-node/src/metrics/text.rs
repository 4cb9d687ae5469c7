//! The metrics as text, in the format that Prometheus and others scrape (`OpenMetrics` 1.0).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{Family, Kind, Metrics, Value};

/// What an HTTP server says that the text is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Metrics {
    /// All metrics as `OpenMetrics` text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Families(self.families())));
        let mut out = String::new();
        // A String takes everything.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            let Some(label) = family.label else {
                if let Some(only) = family.samples.first() {
                    encode_value(metric, family.kind, only.value)?;
                }
                continue;
            };
            for sample in &family.samples {
                let labels = [(label, sample.label)];
                encode_value(metric.encode_family(&labels)?, family.kind, sample.value)?;
            }
        }
        Ok(())
    }
}

fn encode_value(
    mut encoder: MetricEncoder<'_>,
    kind: Kind,
    value: Value,
) -> Result<(), fmt::Error> {
    match (kind, value) {
        (Kind::Counter, Value::Count(count)) => {
            encoder.encode_counter::<NoLabelSet, u64, u64>(&count, None)
        }
        (_, Value::Count(count)) => encoder.encode_gauge(&count),
        (_, Value::Latency(latency)) => {
            let steps = latency
                .steps()
                .map(|(end, count)| (end.map_or(f64::INFINITY, |end| end.as_secs_f64()), count));
            let steps: Vec<(f64, u64)> = steps.collect();
            let sum = latency.sum().as_secs_f64();
            encoder.encode_histogram::<NoLabelSet>(sum, latency.count(), &steps, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::NodeConfig;
    use crate::node::Node;

    fn metrics_for_test() -> Metrics {
        let dir = tempfile::tempdir().unwrap();
        let mut config = NodeConfig::new(64 * 4096);
        config.region_dir = dir.path().to_owned();
        Node::start(&config).unwrap().metrics()
    }

    #[test]
    fn every_kind_is_written_as_the_format_wants_it() {
        let mut metrics = metrics_for_test();
        metrics.evictions = 7;
        metrics.events.fallbacks.insert("refused", 2);
        metrics.consumer.ack_latency.observe(Duration::from_micros(300));
        let text = metrics.to_text();
        for line in [
            "# TYPE chiasm_evictions counter",
            "chiasm_evictions_total 7",
            "# TYPE chiasm_blocks gauge",
            "chiasm_blocks{state=\"free\"} 64",
            "chiasm_fallbacks_total{reason=\"refused\"} 2",
            "chiasm_ack_latency_seconds_count 1",
            "chiasm_ack_latency_seconds_sum 0.0003",
            "chiasm_ack_latency_seconds_bucket{le=\"0.00025\"} 0",
            "chiasm_ack_latency_seconds_bucket{le=\"0.0005\"} 1",
            "chiasm_ack_latency_seconds_bucket{le=\"+Inf\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn names_are_unique_and_say_whose_they_are() {
        let families = metrics_for_test().families();
        let mut names: Vec<_> = families.iter().map(|family| family.name).collect();
        assert!(names.iter().all(|name| name.starts_with("chiasm_") && !name.ends_with("_total")));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), families.len());
    }

    #[test]
    fn blocks_by_state_add_up() {
        let metrics = metrics_for_test();
        let families = metrics.families();
        let blocks = families.iter().find(|family| family.name == "chiasm_blocks").unwrap();
        let counts = blocks.samples.iter().map(|sample| match sample.value {
            Value::Count(count) => count,
            Value::Latency(_) => panic!("blocks are counted"),
        });
        assert_eq!(counts.sum::<u64>(), u64::from(metrics.usage.total));
    }
}
