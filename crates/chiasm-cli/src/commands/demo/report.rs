//! What the demo has shown, as a table and as JSON.

use serde_json::{Value, json};

use crate::commands::table;

/// One encoding and what became of it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) hash: String,
    pub(super) label: &'static str,
    pub(super) bytes: Option<u64>,
    pub(super) plane: Option<String>,
    pub(super) ms: f64,
    pub(super) verdict: String,
    pub(super) expected: &'static str,
    pub(super) reason: Option<String>,
    /// Whether the bytes are those of the producer's file, if there are any.
    pub(super) identical: Option<bool>,
}

impl Line {
    fn as_expected(&self) -> bool {
        self.verdict == self.expected && self.identical != Some(false)
    }

    fn gigabytes_per_second(&self) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a speed for people, of less than 2^52 bytes"
        )]
        let bytes = self.bytes? as f64;
        (self.ms > 0.0).then(|| bytes / self.ms / 1e6)
    }
}

/// Everything that the demo has shown.
#[derive(Debug)]
pub(super) struct Report {
    endpoint: String,
    pub(super) lines: Vec<Line>,
}

impl Report {
    pub(super) fn new(endpoint: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), lines: Vec::new() }
    }

    /// Whether everything went as it should.
    pub(super) fn as_expected(&self) -> bool {
        self.lines.iter().all(Line::as_expected)
    }

    pub(super) fn to_json(&self) -> String {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                json!({
                    "mm_hash": line.hash,
                    "what": line.label,
                    "bytes": line.bytes,
                    "plane": line.plane,
                    "ms": line.ms,
                    "gb_per_s": line.gigabytes_per_second(),
                    "verdict": line.verdict,
                    "expected": line.expected,
                    "reason": line.reason,
                    "identical": line.identical,
                })
            })
            .collect();
        let report =
            json!({ "producer": self.endpoint, "items": lines, "as_expected": self.as_expected() });
        format!("{report:#}")
    }

    pub(super) fn to_table(&self) -> String {
        let columns = ["encoding", "what", "size", "plane", "ms", "GB/s", "verdict", "bytes"];
        let mut table = table::table(&columns, &["size", "ms", "GB/s"]);
        for line in &self.lines {
            let verdict = match &line.reason {
                Some(reason) if *reason != line.verdict => format!("{} ({reason})", line.verdict),
                _ => line.verdict.clone(),
            };
            let verdict = if line.as_expected() {
                verdict
            } else {
                format!("{verdict}, NOT {}", line.expected)
            };
            table.add_row([
                line.hash.chars().take(16).collect(),
                line.label.to_owned(),
                line.bytes.map_or_else(String::new, table::size),
                line.plane.clone().unwrap_or_default(),
                format!("{:.1}", line.ms),
                line.gigabytes_per_second().map_or_else(String::new, |speed| format!("{speed:.2}")),
                verdict,
                match line.identical {
                    Some(true) => "identical",
                    Some(false) => "DIFFERENT",
                    None => "",
                }
                .to_owned(),
            ]);
        }
        let words = if self.as_expected() {
            "Everything went as it should. ms counts from the first wish to the last byte, in a process \
             that fetches all encodings at once."
        } else {
            "NOT everything went as it should: see the lines in capitals."
        };
        format!("producer {}, approved\n\n{}\n\n{words}", self.endpoint, table.trim_fmt())
    }
}
