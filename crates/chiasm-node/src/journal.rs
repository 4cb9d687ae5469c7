//! Events of the core as log lines: who, what, which limit, what to do.

use chiasm_core::admission::Event;
use chiasm_core::endpoint::Endpoint;

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
