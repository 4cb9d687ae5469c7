//! Counters and gauges of a node, by name.
//!
//! A value that has a label is called `name/value`; no name and no value of a label has a `/`.

use chiasm_core::wire::AckStatus;
use chiasm_node::Node;

/// One metric: its name, kind, label and meaning.
pub(crate) type Metric = (&'static str, &'static str, Option<&'static str>, &'static str);

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

/// Every metric.
pub(crate) const METRICS: &[Metric] = &[
    (
        "chiasm_blocks",
        GAUGE,
        Some("state"),
        "Blocks of the region; evictable ones are live as well.",
    ),
    ("chiasm_entries", GAUGE, None, "Encoder outputs in the region, ready or not."),
    ("chiasm_pinned_entries", GAUGE, None, "Entries that are in use and cannot be evicted."),
    ("chiasm_live_grants", GAUGE, None, "Entries that peers are being given to read."),
    ("chiasm_outstanding_orders", GAUGE, Some("kind"), "Orders that workers have not reported."),
    ("chiasm_grants_total", COUNTER, None, "Requests of peers that were granted."),
    ("chiasm_nacks_total", COUNTER, Some("status"), "Requests of peers that were refused."),
    ("chiasm_grants_ended_total", COUNTER, Some("how"), "Grants that have ended."),
    ("chiasm_over_quota_total", COUNTER, None, "Requests of peers beyond a quota, told NOT_READY."),
    ("chiasm_malformed_requests_total", COUNTER, None, "Messages of peers that were no requests."),
    ("chiasm_bad_tokens_total", COUNTER, None, "Data streams with a token that opens nothing."),
    ("chiasm_requests_sent_total", COUNTER, None, "Requests to producers."),
    ("chiasm_reads_total", COUNTER, None, "Encoder outputs read from producers."),
    ("chiasm_read_bytes_total", COUNTER, Some("plane"), "Bytes read from producers."),
    ("chiasm_failed_transfers_total", COUNTER, Some("reason"), "Attempts to read that failed."),
    ("chiasm_stray_acks_total", COUNTER, None, "Answers that nobody waited for."),
    ("chiasm_saves_total", COUNTER, Some("how"), "Saves by workers, by how they ended."),
    ("chiasm_loads_total", COUNTER, Some("how"), "Loads by workers, by how they ended."),
    ("chiasm_ignored_reports_total", COUNTER, None, "Reports of workers that fit no order."),
];

/// The values of a node, in the order of the table.
#[expect(clippy::cast_precision_loss, reason = "counters are shown, not counted with")]
pub(crate) fn of(node: &Node) -> Vec<(String, f64)> {
    let mut values = Vec::new();
    let mut add = |name: String, value: u64| values.push((name, value as f64));

    let usage = node.usage();
    for (state, blocks) in [
        ("total", usage.total),
        ("free", usage.free),
        ("live", usage.live),
        ("evictable", usage.evictable),
        ("quarantined", usage.quarantined),
    ] {
        add(format!("chiasm_blocks/{state}"), blocks.into());
    }
    add("chiasm_entries".into(), usage.entries as u64);
    add("chiasm_pinned_entries".into(), usage.pinned_entries as u64);
    add("chiasm_live_grants".into(), node.live_grants() as u64);
    let out = node.outstanding();
    for (kind, orders) in [("save", out.saves), ("load", out.loads), ("lost_save", out.lost_saves)]
    {
        add(format!("chiasm_outstanding_orders/{kind}"), orders as u64);
    }

    let producer = node.producer_counters();
    add("chiasm_grants_total".into(), producer.granted);
    for (status, count) in AckStatus::ALL.into_iter().zip(producer.nacks) {
        if !status.is_ok() {
            add(format!("chiasm_nacks_total/{}", status.name()), count);
        }
    }
    for (how, count) in [
        ("completed", producer.completed),
        ("done", producer.done),
        ("expired", producer.expired),
        ("lost", producer.lost),
    ] {
        add(format!("chiasm_grants_ended_total/{how}"), count);
    }
    add("chiasm_over_quota_total".into(), producer.over_quota);
    add("chiasm_malformed_requests_total".into(), producer.malformed);
    add("chiasm_bad_tokens_total".into(), producer.bad_tokens);

    let consumer = node.consumer_counters();
    add("chiasm_requests_sent_total".into(), consumer.requests);
    add("chiasm_reads_total".into(), consumer.arrived);
    for (plane, bytes) in consumer.bytes {
        add(format!("chiasm_read_bytes_total/{plane}"), bytes);
    }
    for (reason, count) in consumer.failed {
        add(format!("chiasm_failed_transfers_total/{reason}"), count);
    }
    add("chiasm_stray_acks_total".into(), consumer.stray_acks);

    let orders = node.dispatch_counters();
    for (how, count) in
        [("done", orders.saved), ("failed", orders.failed_saves), ("lost", orders.lost_saves)]
    {
        add(format!("chiasm_saves_total/{how}"), count);
    }
    for (how, count) in
        [("done", orders.loaded), ("failed", orders.failed_loads), ("late", orders.late_loads)]
    {
        add(format!("chiasm_loads_total/{how}"), count);
    }
    add("chiasm_ignored_reports_total".into(), orders.ignored_reports);
    values
}
