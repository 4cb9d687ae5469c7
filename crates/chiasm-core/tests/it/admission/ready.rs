//! What is ready without waiting, and what is refused before anything is touched.

use chiasm_core::admission::{Decision, Event, Form, Item, Offer, Verdict};
use chiasm_core::announcement::Announcement;
use rstest::rstest;
use serde_json::json;

use super::producers::Manner;
use super::world::{World, hash, producer};

#[test]
fn a_remote_item_is_read_and_then_ready() {
    let mut world = World::new(8);
    world.set("p", Manner::Slow);
    world.request("a", false, &[("h", "p", 3)]);
    assert!(world.contacts.is_empty(), "nothing is started before the engine asks");
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.admission.promised("h"), None);
    let read = world.reading("h", "p").unwrap();
    world.land(read);
    assert_eq!(world.admission.promised("h"), None, "not before the engine was told");
    assert_eq!(world.ensure("a"), Decision::Ready);
    let (entry, _) = world.cache.find("h").unwrap();
    assert_eq!(world.admission.promised("h"), Some(entry));
    let report = &world.report("a")[0];
    assert_eq!((report.verdict, report.attempts, report.entry), (Verdict::Ready, 1, Some(entry)));
    assert_eq!(report.plane, Some(chiasm_core::plane::Plane::Tcp));
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.sent.len(), 1, "later steps read nothing");
    world.finish("a");
    world.assert_at_rest();
}

#[test]
fn what_is_not_announced_or_has_no_address_is_ready_without_a_read() {
    let mut world = World::new(8);
    let none = world.announced("x", 2, 2, None);
    let no_address = world.announced("y", 2, 4, Some(&Ok(Announcement::MetadataOnly)));
    let items = [none, no_address].map(|item| Item { local_input: true, ..item });
    world.request_of("a", items.to_vec());
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.verdict("a").0, Verdict::NotAnnounced);
    assert!(world.contacts.is_empty());
    assert_eq!(world.cache.usage().entries, 0);
}

#[test]
fn an_item_without_announcement_is_used_when_the_region_gets_it() {
    let mut world = World::new(8);
    let item = world.announced("h", 2, 2, None);
    world.request_of("a", vec![Item { local_input: true, ..item }]);
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.request("b", false, &[("h", "p", 2)]);
    world.ensure("b");
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert!(world.report("a")[0].entry.is_some());
}

#[test]
fn an_item_that_nothing_can_bring_fails_its_request_not_the_engine() {
    let mut world = World::new(8);
    let item = world.announced("h", 2, 2, None);
    world.request_of("a", vec![item.clone()]);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    assert_eq!(world.failed, ["a"]);
    // A save under way may bring it.
    let save = world.save("h", 2, false);
    world.request_of("b", vec![item]);
    assert_eq!(world.ensure("b"), Decision::Wait);
    world.saved(save, "h");
    assert_eq!(world.ensure("b"), Decision::Ready);
    assert!(world.contacts.is_empty());
}

#[test]
fn a_local_hit_is_ready_without_a_read() {
    let mut world = World::new(8);
    world.save("h", 3, true);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert!(world.contacts.is_empty());
}

#[test]
fn an_item_wholly_computed_is_ready_and_the_cache_is_not_touched() {
    let mut world = World::new(8);
    world.set("p", Manner::Slow);
    world.request("a", false, &[("h", "p", 3), ("i", "p", 2)]);
    world.compute("a", 5);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.verdict("a").0, Verdict::Computed);
    assert!(world.contacts.is_empty());
    world.compute("a", 4);
    assert_eq!(world.ensure("a"), Decision::Wait, "one token of the second is missing");
    assert_eq!(world.sent.len(), 1);
    assert_eq!(world.sent[0].2, "i");
}

#[test]
fn preemption_lowers_the_tokens_and_everything_is_looked_at_again() {
    let mut world = World::new(4);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.compute("a", 3);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.cache.usage().pinned_entries, 0, "a computed item needs no entry");
    world.save("other", 4, true);
    assert!(world.cache.find("h").is_none());
    world.compute("a", 0);
    assert_eq!(world.ensure("a"), Decision::Wait, "\"computed\" is not remembered");
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.sent.len(), 2);
}

#[test]
fn a_pending_local_save_is_waited_for_without_a_read() {
    let mut world = World::new(8);
    let save = world.save("h", 3, false);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(std::time::Duration::from_secs(5));
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert!(world.contacts.is_empty());
    world.saved(save, "h");
    assert_eq!(world.ensure("a"), Decision::Ready);
}

#[test]
fn a_save_that_is_given_up_is_followed_by_a_read() {
    let mut world = World::new(8);
    let save = world.save("h", 3, false);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    // Nobody reports it: the next step finds it out.
    world.cache.discard(save).unwrap();
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.sent.len(), 1);
}

#[rstest]
#[case::not_an_object(json!(123))]
#[case::size_mismatch(json!({"peer_host": "p.example", "peer_port": 5601, "size_bytes": 32, "shape": [3, 8]}))]
#[case::null_size(json!({"peer_host": "p.example", "peer_port": 5601, "size_bytes": null, "shape": [3, 8]}))]
#[case::text_size(json!({"peer_host": "p.example", "peer_port": 5601, "size_bytes": "48", "shape": [3, 8]}))]
#[case::no_size(json!({"peer_host": "p.example", "peer_port": 5601, "shape": [3, 8]}))]
#[case::no_shape(json!({"peer_host": "p.example", "peer_port": 5601, "size_bytes": 48}))]
#[case::wrong_rows(json!({"peer_host": "p.example", "peer_port": 5601, "size_bytes": 64, "shape": [4, 8]}))]
#[case::hazard_a8_half_width(json!({"peer_host": "p.example", "peer_port": 5601, "size_bytes": 32, "shape": [3, 4]}))]
#[case::hazard_a8_no_width(json!({"peer_host": "p.example", "peer_port": 5601, "size_bytes": 0, "shape": [3, 0]}))]
#[case::hazard_c1_bad_host(json!({"peer_host": "bad host!", "peer_port": 5601, "size_bytes": 48, "shape": [3, 8]}))]
#[case::hazard_c1_bad_port(json!({"peer_host": "p.example", "peer_port": "0x15e1", "size_bytes": 48, "shape": [3, 8]}))]
#[case::hazard_d4_number_as_host(json!({"peer_host": "2130706433", "peer_port": 5601, "size_bytes": 48, "shape": [3, 8]}))]
fn an_invalid_announcement_is_terminal_and_touches_nothing(#[case] value: serde_json::Value) {
    for pixels in [false, true] {
        let mut world = World::new(8);
        let parsed = Announcement::parse(&value);
        let item = world.announced("h", 3, 3, Some(&parsed));
        assert!(matches!(item.offer, Offer::Invalid(_)), "{value}");
        world.request_of("a", vec![Item { local_input: pixels, ..item }]);
        let decision = world.ensure("a");
        if pixels {
            assert_eq!(decision, Decision::Fallback);
            assert_eq!(world.admission.fell_back("a").collect::<Vec<_>>(), [&hash("h")]);
            assert!(world.failed.is_empty());
        } else {
            assert_eq!(decision, Decision::Unavailable);
            assert_eq!(world.failed, ["a"]);
        }
        assert!(world.contacts.is_empty());
        assert_eq!(world.cache.usage().free, 8, "no block was taken");
        world.finish("a");
        world.assert_at_rest();
        // The hash is not poisoned.
        world.request("b", false, &[("h", "p", 3)]);
        assert_eq!(world.ensure("b"), Decision::Wait);
        assert_eq!(world.ensure("b"), Decision::Ready);
    }
}

#[test]
fn hazard_d4_a_producer_that_is_not_approved_is_never_contacted() {
    let mut world = World::new(8);
    world.request("a", false, &[("h", "evil", 3)]);
    world.request("b", true, &[("h", "evil", 3)]);
    world.request("c", true, &[("i", "evil", 3)]);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    assert_eq!(world.ensure("b"), Decision::Fallback);
    assert_eq!(world.ensure("c"), Decision::Fallback);
    assert!(world.contacts.is_empty() && world.sent.is_empty());
    assert_eq!(world.cache.usage().free, 8);
    let refusals: Vec<_> =
        world.events.iter().filter(|event| matches!(event, Event::Refused(_))).collect();
    assert_eq!(refusals.len(), 1, "one line per endpoint");
    let (_, reason) = world.verdict("b");
    let text = reason.as_ref().unwrap().to_string();
    assert!(text.contains("ec_allowed_peers: [\"evil.example:5601\"]"), "{text}");
    assert_eq!(reason.unwrap().word(), "not_allowed");
}

#[test]
fn an_endpoint_that_leaves_the_allowlist_is_given_up_at_once() {
    let mut world = World::new(8);
    world.set("p", Manner::Slow);
    world.request("a", false, &[("h", "p", 2)]);
    world.request("b", true, &[("i", "p", 2)]);
    world.request("c", true, &[("j", "q", 2)]);
    world.set("q", Manner::Asked);
    for id in ["a", "b", "c"] {
        assert_eq!(world.ensure(id), Decision::Wait);
    }
    world.allow(&["q.example:5601"]);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    assert_eq!(world.ensure("b"), Decision::Fallback);
    assert_eq!(world.ensure("c"), Decision::Wait, "its producer is still approved");
    assert_eq!(world.failed, ["a"]);
    world.allow(&["p.example:5601", "q.example:5601"]);
    assert_eq!(world.ensure("b"), Decision::Fallback, "what was refused stays so");
    world.set("q", Manner::Healthy);
    world.agree("j");
    assert_eq!(world.ensure("c"), Decision::Ready);
    for id in ["a", "b", "c"] {
        world.finish(id);
    }
    world.assert_at_rest();
}

#[test]
fn an_entry_of_another_shape_is_never_taken_for_the_item() {
    // Not in use: it makes way.
    let mut world = World::new(16);
    world.save("h", 5, true);
    world.request("a", true, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("a"), Decision::Ready);
    let (_, entry) = world.cache.find("h").unwrap();
    assert_eq!(entry.meta().rows, 3);

    // In use: the request fails, since the engine would take the entry for its own.
    let mut world = World::new(16);
    let saved = world.save("h", 5, true);
    world.cache.pin(saved).unwrap();
    world.request("a", true, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    assert_eq!(world.verdict("a").1.unwrap().word(), "other_form");
    assert!(world.contacts.is_empty());
}

#[test]
fn hazard_b1_two_shapes_announced_for_one_entry_are_two_reads() {
    let mut world = World::new(16);
    world.set("p", Manner::Asked);
    let right = world.item("h", "p", 3, 3);
    let wrong = {
        let Offer::Remote(wanted) = right.offer.clone() else { unreachable!() };
        let form = Form { rows: Some(2), ..right.form };
        let wanted = chiasm_core::consumer::Wanted { rows: 2, blocks: 2, ..wanted };
        Item { form, offer: Offer::Remote(wanted), ..right.clone() }
    };
    world.request_of("liar", vec![wrong]);
    world.request_of("honest", vec![right]);
    assert_eq!(world.ensure("liar"), Decision::Wait);
    assert_eq!(world.ensure("honest"), Decision::Wait);
    world.set("p", Manner::Healthy);
    world.agree("h");
    world.agree("h");
    assert_eq!(world.ensure("liar"), Decision::Unavailable);
    assert_eq!(world.ensure("honest"), Decision::Ready, "the lie is charged to the liar alone");
    assert_eq!(world.failed, ["liar"]);
    assert_eq!(world.verdict("liar").1.unwrap().word(), "ack_mismatch");
    assert_eq!(
        world.admission.gate(world.now, &producer("p")),
        chiasm_core::admission::Gate::Closed
    );
}

#[test]
fn an_entry_of_another_shape_that_arrives_meanwhile_is_not_taken_for_the_item() {
    let mut world = World::new(16);
    world.set("p", Manner::Asked);
    world.set("q", Manner::Silent);
    let five = world.item("h", "q", 5, 5);
    let three = world.item("h", "p", 3, 3);
    world.request_of("five", vec![five]);
    world.request_of("three", vec![three]);
    assert_eq!(world.ensure("five"), Decision::Wait);
    assert_eq!(world.ensure("three"), Decision::Wait);
    world.set("p", Manner::Healthy);
    world.agree("h");
    assert_eq!(world.ensure("three"), Decision::Ready);
    assert_eq!(world.ensure("five"), Decision::Unavailable);
    assert_eq!(world.verdict("five").1.unwrap().word(), "other_form");
}
