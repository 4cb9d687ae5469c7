//! Events of the core as log lines (who, what, which limit, what to do), and how many of each.

use chiasm_core::admission::Event;
use chiasm_core::dispatch;
use chiasm_core::endpoint::Endpoint;

use crate::metrics::EventCounts;

/// Counts one that is written.
pub(crate) fn count(event: &Event, counts: &mut EventCounts) {
    match event {
        Event::FellBack { reason, .. } => {
            *counts.fallbacks.entry(reason.word()).or_default() += 1;
        }
        Event::Failed { reason, .. } => {
            *counts.unavailable.entry(reason.word()).or_default() += 1;
        }
        Event::Refused(_) => counts.refused_endpoints += 1,
        Event::AckTimeout { .. } => counts.ack_timeouts += 1,
        Event::WrongBytes { .. } => counts.wrong_bytes += 1,
        Event::Disagree { .. } => counts.disagreements += 1,
        Event::BreakerOpened { .. } => counts.breakers_opened += 1,
        Event::BreakerClosed { .. } => {}
    }
}

/// Writes one line.
pub(crate) fn log(event: &Event) {
    match event {
        Event::Refused(refusal) => tracing::warn!("{refusal}"),
        Event::AckTimeout { source, hash, attempt, waited, budget_left } => tracing::warn!(
            peer = %source,
            mm_hash = hash.short(),
            attempt,
            waited_s = waited.as_secs_f64(),
            budget_left_s = budget_left.as_secs_f64(),
            "no ack in time"
        ),
        Event::FellBack { request, hash, reason, waited } => tracing::info!(
            %request,
            mm_hash = hash.short(),
            waited_s = waited.as_secs_f64(),
            "encoding locally: {reason}"
        ),
        Event::Failed { request, hash, reason, waited } => tracing::warn!(
            %request,
            mm_hash = hash.as_ref().map_or("", |hash| hash.short()),
            waited_s = waited.as_secs_f64(),
            "the request fails: {reason}"
        ),
        Event::Disagree { hash, first, second } => tracing::error!(
            mm_hash = hash.short(),
            first = first.as_ref().map_or("a local save".to_owned(), Endpoint::to_string),
            %second,
            "two sources hold different bytes under one mm_hash; those of the first are used"
        ),
        Event::WrongBytes { source, hash, reason } => {
            tracing::warn!(peer = %source, mm_hash = hash.short(), "wrong bytes: {reason}");
        }
        Event::BreakerOpened { source, reason, pause } => tracing::warn!(
            peer = %source,
            pause_s = pause.as_secs_f64(),
            "the producer is taken to be down: {reason}"
        ),
        Event::BreakerClosed { source } => {
            tracing::info!(peer = %source, "the producer answers again");
        }
    }
}

/// Writes one line about orders to workers.
pub(crate) fn log_dispatch(event: &dispatch::Event) {
    match event {
        dispatch::Event::SaveLost { hash, rank, waited, blocks } => tracing::warn!(
            mm_hash = hash.short(),
            %rank,
            waited_s = waited.as_secs_f64(),
            blocks,
            "a save was not reported in time: its blocks cannot be used until its worker reports it \
             or ends; is the worker stuck? (save_timeout_s)"
        ),
        dispatch::Event::LoadLate { hash, ranks, waited } => tracing::warn!(
            mm_hash = hash.short(),
            ?ranks,
            waited_s = waited.as_secs_f64(),
            "a load was not reported in time: its entry stays until these workers report it or end"
        ),
        dispatch::Event::SaveFailed { hash, rank } => {
            tracing::warn!(mm_hash = hash.short(), %rank, "a worker could not save");
        }
        dispatch::Event::WorkerGone { rank, saves, loads } => {
            tracing::warn!(%rank, saves, loads, "a worker ended while it had orders");
        }
    }
}
