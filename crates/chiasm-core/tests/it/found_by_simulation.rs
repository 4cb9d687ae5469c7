//! What the simulator has found, each as the shortest story that shows it.

use chiasm_core::allowlist::Allowlist;
use chiasm_core::consumer::{ConsumerAction, FailureReason};
use chiasm_core::instance::Instance;
use chiasm_core::limits;
use serde_json::json;

use crate::conformance_pair::{SOURCE, instance_for_test, item, source};

/// A request for something that only the producer has; what the owner of sockets is asked for.
fn ask(core: &mut Instance, now: chiasm_core::time::Nanos, id: &str) -> Vec<ConsumerAction> {
    let (host, port) = SOURCE.split_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    let offer = json!({"peer_host": host, "peer_port": port, "size_bytes": 64, "shape": [1, 16]});
    let items = vec![item("a", (1, 1), false, &json!({ "a": offer }), 8)];
    core.track(now, id, items).unwrap();
    core.ensure(now, id, 1, 0).unwrap();
    std::iter::from_fn(|| core.poll_action()).collect()
}

/// A producer that is taken off the list while its link is being opened, or rests before the next
/// attempt, was taken for one whose link is being opened for ever after: nobody opened it.
#[test]
fn a_producer_that_is_put_on_the_list_again_is_connected_to_again() {
    let mut core = instance_for_test(8, limits::UPSTREAM_LEASE);
    let mut now = chiasm_core::time::Nanos::from_nanos(1);
    let open = [ConsumerAction::OpenLink(source())];
    assert_eq!(ask(&mut core, now, "first"), open);
    core.set_allowlist(now, Allowlist::default());
    assert_eq!(core.take_unavailable_requests().len(), 1);
    core.finish(now, "first");
    core.set_allowlist(now, Allowlist::parse([SOURCE]).unwrap());
    assert_eq!(ask(&mut core, now, "second"), open, "its link is to be opened");
    // What an owner says of the old link on its way out is the new one's end at worst.
    core.link_down(now, &source(), &FailureReason::Refused);
    now = core.poll_timeout();
    core.handle_timeout(now);
    assert_eq!(core.poll_action(), Some(ConsumerAction::OpenLink(source())));
}

/// A link that stands is given up too: what still comes over it is nobody's.
#[test]
fn a_link_to_a_producer_that_was_off_the_list_for_a_moment_is_asked_for_anew() {
    let mut core = instance_for_test(8, limits::UPSTREAM_LEASE);
    let now = chiasm_core::time::Nanos::from_nanos(1);
    ask(&mut core, now, "first");
    core.link_up(now, &source());
    assert!(matches!(core.poll_action(), Some(ConsumerAction::Send(..))));
    core.set_allowlist(now, Allowlist::default());
    core.finish(now, "first");
    core.set_allowlist(now, Allowlist::parse([SOURCE]).unwrap());
    assert_eq!(ask(&mut core, now, "second"), [ConsumerAction::OpenLink(source())]);
    // The owner has not looked in between: the old connection still stands, and is as good.
    core.link_up(now, &source());
    assert!(matches!(core.poll_action(), Some(ConsumerAction::Send(..))));
}
