//! Conformance 6 and 7: grants and transfers where upstream's order of polling would show.

use std::time::Duration;

use chiasm_core::admission::Decision;
use chiasm_core::limits::{ACK_TIMEOUT, READ_TIMEOUT, UPSTREAM_LEASE};

use crate::conformance_pair::{Network, Pair, TICK};

/// 6.10: upstream handles requests before it sweeps, so a request that comes after the lease's end
/// but before anybody has noticed it renews the grant. One pin, whichever comes first.
#[test]
fn a_request_that_overtakes_the_sweep_renews_the_grant() {
    let mut pair = Pair::new(8);
    let key = pair.encoded("h", 3);
    pair.network = Network::SlowBytes;
    pair.late = Some(Vec::new());
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    assert_eq!(pair.producer.producer().live_grants(), 1);
    pair.finish("a");

    pair.now = pair.now.after(UPSTREAM_LEASE + TICK);
    pair.request("b", "h", 3, false);
    assert_eq!(pair.step("b"), Decision::Wait);
    assert_eq!(pair.producer.producer().counters().granted, 2);
    pair.producer.handle_timeout(pair.now);
    let pins = |pair: &Pair| pair.producer.cache().entry(key).expect("an entry").pins();
    assert_eq!((pins(&pair), pair.producer.producer().live_grants()), (1, 1), "renewed");
    pair.producer.handle_timeout(pair.now.after(UPSTREAM_LEASE));
    assert_eq!(pins(&pair), 1);
    pair.producer.handle_timeout(pair.now.after(UPSTREAM_LEASE + TICK));
    assert_eq!(pins(&pair), 0);
    assert_eq!(pair.producer.producer().counters().expired, 1);
}

/// 7.11: upstream gives quarantined blocks back after 60 s, whatever still writes into them (hazard
/// A3). Here they wait for the plane, however long that takes.
#[test]
fn hazard_a3_quarantined_blocks_are_never_freed_by_time_alone() {
    let mut pair = Pair::new(8);
    pair.encoded("h", 3);
    pair.network = Network::SlowBytes;
    pair.request("a", "h", 3, true);
    assert_eq!(pair.step("a"), Decision::Wait);
    pair.pass(READ_TIMEOUT + TICK);
    assert_eq!(pair.aborted.len(), 1, "asked of the plane once");
    assert_eq!(pair.consumer.usage().quarantined, 3);
    pair.finish("a");
    pair.pass(Duration::from_hours(1));
    assert_eq!((pair.consumer.usage().quarantined, pair.consumer.usage().free), (3, 5));
    pair.land();
    assert_eq!(pair.consumer.usage().free, 8, "and what landed late is nobody's entry");
    pair.pass(Duration::from_mins(1));
    pair.assert_at_rest();
}

/// 7.16: the ack and the end of the read are seen in one and the same instant.
#[test]
fn an_ack_and_its_bytes_in_one_instant_complete_the_transfer() {
    let mut pair = Pair::new(8);
    pair.encoded("h", 3);
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    assert_eq!(pair.step("a"), Decision::Ready);
    assert_eq!(pair.consumer.consumer().counters().failed.len(), 0);
    pair.finish("a");
    pair.assert_at_rest();
}

/// 7.20 and 7.21: the loss of the connection costs what waits for an ack another attempt, and what
/// reads nothing.
#[test]
fn the_loss_of_the_link_is_no_ones_end() {
    let mut pair = Pair::new(8);
    pair.encoded("asking", 3);
    pair.encoded("reading", 3);
    pair.network = Network::SlowBytes;
    pair.request("r", "reading", 3, false);
    assert_eq!(pair.step("r"), Decision::Wait);
    pair.network = Network::Mute;
    pair.request("a", "asking", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    pair.network = Network::SlowBytes;
    pair.lose_link();
    assert_eq!(pair.consumer.usage().quarantined, 0, "the stream is another connection");
    assert_eq!(pair.step("a"), Decision::Wait, "not failed");
    pair.land();
    assert_eq!(pair.step("r"), Decision::Ready);
    pair.network = Network::Fast;
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.step("a"), Decision::Ready);
    assert_eq!(pair.asked, ["reading", "asking", "asking"]);
    assert!(pair.failed.is_empty());
}

/// 7.21: messages are handled before time-outs, so an ack that lies in the queue while its deadline
/// passes still counts, as long as its lease is good.
#[test]
fn an_ack_that_is_there_before_its_time_out_is_looked_at_counts() {
    let mut pair = Pair::with_lease(8, 2 * ACK_TIMEOUT);
    pair.encoded("h", 3);
    pair.late = Some(Vec::new());
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    let ack = pair.late.take().expect("answers are held back").remove(0);
    pair.now = pair.now.after(ACK_TIMEOUT + TICK);
    pair.consumer.receive(pair.now, &crate::conformance_pair::source(), &ack);
    pair.consumer.handle_timeout(pair.now);
    pair.settle();
    assert_eq!(pair.step("a"), Decision::Ready);
    assert_eq!(pair.asked, ["h"], "no second attempt");
}
