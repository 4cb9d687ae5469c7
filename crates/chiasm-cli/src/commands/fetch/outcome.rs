//! What became of each encoding, as a table and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use chiasm_core::admission::Reason;
use chiasm_core::consumer::FailureReason;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use serde_json::{Value, json};

use crate::commands::table;
use crate::exit::Failure;

/// How an encoding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fetched,
    Fallback,
    Unavailable,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Fetched => "fetched",
            Self::Fallback => "fallback",
            Self::Unavailable => "unavailable",
        }
    }
}

/// What became of one encoding.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    hash: MmHash,
    verdict: Verdict,
    meta: Option<EntryMeta>,
    plane: Option<Plane>,
    pub(super) waited: Duration,
    pub(super) attempts: u32,
    /// A word for machines and a sentence for people, if it was not fetched.
    reason: Option<(&'static str, String)>,
    /// The flag that would have let it through, for whoever trusts the producer.
    remedy: Option<String>,
}

impl Outcome {
    pub(super) fn fetched(
        hash: &MmHash,
        meta: EntryMeta,
        plane: Option<Plane>,
        waited: Duration,
        attempts: u32,
    ) -> Self {
        let hash = hash.clone();
        let meta = Some(meta);
        Self {
            hash,
            verdict: Verdict::Fetched,
            meta,
            plane,
            waited,
            attempts,
            reason: None,
            remedy: None,
        }
    }

    pub(super) fn not_fetched(hash: &MmHash, verdict: Verdict, reason: &Reason) -> Self {
        let remedy = match reason {
            Reason::Refused(refusal) => Some(format!("--allow {}", refusal.endpoint)),
            _ => None,
        };
        let reason = Some((word(reason), reason.to_string()));
        Self { verdict, reason, remedy, ..Self::not_announced(hash) }
    }

    /// NIXL was asked for and cannot be used: without it there may be no plane in common.
    pub(super) fn note_missing_nixl(&mut self, why: &str) {
        if let Some((word, detail)) = &mut self.reason
            && *word == "no_plane"
        {
            let _ = write!(detail, "; nixl was passed over: {why}");
        }
    }

    /// There is nothing to read: the announcement names no producer.
    pub(super) fn not_announced(hash: &MmHash) -> Self {
        Self {
            hash: hash.clone(),
            verdict: Verdict::Unavailable,
            meta: None,
            plane: None,
            waited: Duration::ZERO,
            attempts: 0,
            reason: Some(("not_announced", "the announcement names no producer".into())),
            remedy: None,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "mm_hash": self.hash.as_str(),
            "bytes": self.meta.map(|meta| meta.bytes),
            "shape": self.meta.map(|meta| [meta.rows, meta.width]),
            "dtype": self.meta.and_then(|meta| meta.dtype).map(Dtype::name),
            "plane": self.plane.map(Plane::name),
            "ms": self.waited.as_secs_f64() * 1e3,
            "verdict": self.verdict.word(),
            "reason": self.reason.as_ref().map(|(word, _)| word),
            "detail": self.reason.as_ref().map(|(_, detail)| detail),
        })
    }
}

/// The cause behind the end of a budget or behind an open breaker says more than that end itself.
fn word(reason: &Reason) -> &'static str {
    match reason {
        Reason::Invalid(_) => "invalid",
        Reason::BudgetSpent { last: None, .. } => FailureReason::AckTimeout.word(),
        Reason::BudgetSpent { last: Some(last), .. }
        | Reason::ProducerDown { last: Some(last) } => last.word(),
        other => other.word(),
    }
}

/// What became of all encodings.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) outcomes: Vec<Outcome>,
}

impl Report {
    pub(super) fn all_fetched(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.verdict == Verdict::Fetched)
    }

    pub(super) fn to_json(&self, connects: &[Endpoint]) -> Result<String, Failure> {
        let items: Vec<Value> = self.outcomes.iter().map(Outcome::to_json).collect();
        let connects: Vec<String> = connects.iter().map(ToString::to_string).collect();
        let retries = |outcome: &Outcome| u64::from(outcome.attempts.saturating_sub(1));
        let report = json!({
            "items": items,
            "connects": connects,
            "retries": self.outcomes.iter().map(retries).sum::<u64>(),
        });
        serde_json::to_string_pretty(&report).context("JSON").map_err(Failure::Work)
    }

    pub(super) fn to_table(&self) -> String {
        let columns = ["mm_hash", "shape", "dtype", "size", "plane", "ms", "verdict"];
        let mut table = table::table(&columns, &["size", "ms"]);
        for outcome in &self.outcomes {
            let meta = outcome.meta;
            let shape = meta.map(|meta| format!("[{}, {}]", meta.rows, meta.width));
            let dtype = meta.and_then(|meta| meta.dtype).map(|dtype| dtype.to_string());
            let reason = outcome.reason.as_ref().map_or("", |(word, _)| word);
            table.add_row([
                outcome.hash.short().to_owned(),
                shape.unwrap_or_default(),
                dtype.unwrap_or_default(),
                meta.map_or_else(String::new, |meta| table::size(meta.bytes)),
                outcome.plane.map_or("", Plane::name).to_owned(),
                format!("{:.1}", outcome.waited.as_secs_f64() * 1e3),
                format!("{} {reason}", outcome.verdict.word()).trim_end().to_owned(),
            ]);
        }
        let mut text = table.trim_fmt();
        for outcome in &self.outcomes {
            if let Some((_, detail)) = &outcome.reason {
                let _ = write!(text, "\n{}: {detail}", outcome.hash.short());
            }
            if let Some(remedy) = &outcome.remedy {
                let _ = write!(text, "\n    if you trust that producer, allow it here: {remedy}");
            }
        }
        text
    }
}
