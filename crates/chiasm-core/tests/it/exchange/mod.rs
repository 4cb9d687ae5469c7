//! Real producers and real consumers against each other, over encoded bytes, a network that delays
//! and breaks, and blocks whose bytes are there to be compared.

mod network;
mod reader;
mod source;
mod world;

use chiasm_core::consumer::Failure;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;
use proptest::prelude::*;

use self::world::World;

const SECOND: u64 = 1_000_000_000;
/// Blocks of every region.
const BLOCKS: u32 = 20;
const NAMES: usize = 6;

/// What happens next; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Op {
    Save {
        source: usize,
        name: usize,
    },
    SlowSave {
        source: usize,
        name: usize,
    },
    FinishSave {
        source: usize,
    },
    /// A save that makes room by evicting, and writes over what was there.
    Churn {
        source: usize,
        blocks: u32,
    },
    Start {
        reader: usize,
        source: usize,
        name: usize,
        lie: bool,
    },
    Cancel {
        reader: usize,
        which: usize,
    },
    Connect {
        which: usize,
        succeeds: bool,
    },
    ToSource(usize),
    ToReader(usize),
    Break(usize),
    SourceNotices(usize),
    Read {
        reader: usize,
        which: usize,
    },
    FailRead {
        reader: usize,
        which: usize,
    },
    Pass(u64),
}

fn ops(faults: bool) -> impl Strategy<Value = Vec<Op>> {
    let any = 0..64_usize;
    let two = 0..2_usize;
    let name = 0..NAMES;
    let rare = u32::from(faults);
    let lie = prop::bool::weighted(if faults { 0.1 } else { 0.0 });
    let succeeds = prop::bool::weighted(if faults { 0.9 } else { 1.0 });
    let fine = prop_oneof![
        4 => (two.clone(), name.clone()).prop_map(|(source, name)| Op::Save { source, name }),
        8 => (two.clone(), two.clone(), name.clone(), lie)
            .prop_map(|(reader, source, name, lie)| Op::Start { reader, source, name, lie }),
        4 => (any.clone(), succeeds).prop_map(|(which, succeeds)| Op::Connect { which, succeeds }),
        8 => any.clone().prop_map(Op::ToSource),
        8 => any.clone().prop_map(Op::ToReader),
        16 => (two.clone(), any.clone()).prop_map(|(reader, which)| Op::Read { reader, which }),
    ];
    let fault = prop_oneof![
        1 => (two.clone(), name).prop_map(|(source, name)| Op::SlowSave { source, name }),
        1 => two.clone().prop_map(|source| Op::FinishSave { source }),
        4 => (two.clone(), 1..12_u32).prop_map(|(source, blocks)| Op::Churn { source, blocks }),
        2 => (two.clone(), any.clone()).prop_map(|(reader, which)| Op::Cancel { reader, which }),
        1 => any.clone().prop_map(Op::Break),
        1 => any.clone().prop_map(Op::SourceNotices),
        1 => (two, any).prop_map(|(reader, which)| Op::FailRead { reader, which }),
        // Mostly so that leases end while acks and bytes are on their way.
        4 => prop_oneof![6 => 0..9 * SECOND, 1 => 0..31 * SECOND, 1 => Just(29 * SECOND)]
            .prop_map(Op::Pass),
    ];
    prop::collection::vec(prop_oneof![20 - 8 * rare => fine, 7 * rare => fault], 0..150)
}

fn plane() -> impl Strategy<Value = Plane> {
    prop::sample::select(vec![Plane::Tcp, Plane::Shm])
}

/// What happens around the end of leases: acks and bytes are late, blocks get new tenants.
fn late_ops() -> impl Strategy<Value = Vec<Op>> {
    let any = 0..64_usize;
    let op = prop_oneof![
        2 => (0..12 * SECOND).prop_map(Op::Pass),
        4 => any.clone().prop_map(Op::ToReader),
        6 => any.prop_map(|which| Op::Read { reader: 0, which }),
        2 => (4..12_u32).prop_map(|blocks| Op::Churn { source: 0, blocks }),
    ];
    prop::collection::vec(op, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// With digests on some entries and off on others, and planes that stop at the end of a lease
    /// or read on regardless: what is published is what was saved, whatever happens (S2, S3), and
    /// nothing leaks (S4).
    #[test]
    fn what_arrives_is_what_was_saved(
        ops in ops(true), plane in plane(), lease_blind: bool, digests: bool,
    ) {
        let mut world = World::new(plane, lease_blind, digests);
        for op in &ops {
            world.step(op);
            world.check();
        }
        world.end();
    }

    /// The same with all eyes on S2: no digests, and planes that read on.
    #[test]
    fn what_arrives_late_is_what_was_saved_or_nothing(ops in late_ops(), plane in plane()) {
        let mut world = World::new(plane, true, false);
        for name in 0..4 {
            world.step(&Op::Save { source: 0, name });
            world.step(&Op::Start { reader: 0, source: 0, name, lie: false });
            world.step(&Op::Connect { which: 0, succeeds: true });
            world.step(&Op::ToSource(0));
        }
        for op in &ops {
            world.step(op);
            world.check();
        }
        world.end();
    }

    /// Nothing breaks and nothing is lied about: everything arrives.
    #[test]
    fn without_faults_everything_arrives(ops in ops(false), plane in plane()) {
        let mut world = World::new(plane, false, true);
        for op in &ops {
            world.step(op);
            world.check();
        }
        world.settle();
        for (name, failure) in world.failures() {
            let Failure { reason, .. } = failure;
            // Asked for before it was saved, or while another peer held its share; or, over shm, in
            // two forms at once, which take room twice.
            let word = reason.word();
            prop_assert!(["nack_missing", "not_ready", "no_room"].contains(&word), "{name}: {reason}");
        }
        for source in &world.sources {
            prop_assert_eq!(source.producer.live_grants(), 0, "each ends by its own completion");
        }
        world.end();
    }
}

/// The whole way, once, step by step, as a story to read.
#[test]
fn an_entry_goes_from_one_to_the_other() {
    let mut world = World::new(Plane::Tcp, false, true);
    world.step(&Op::Save { source: 0, name: 3 });
    world.step(&Op::Start { reader: 1, source: 0, name: 3, lie: false });
    world.step(&Op::Connect { which: 0, succeeds: true });
    world.step(&Op::ToSource(0));
    assert_eq!(world.sources[0].producer.live_grants(), 1);
    world.step(&Op::ToReader(0));
    while world.readers[1].arrived == 0 {
        world.step(&Op::Read { reader: 1, which: 0 });
        world.check();
    }
    assert_eq!(world.sources[0].producer.live_grants(), 0);
    assert_eq!(world.sources[0].producer.counters().completed, 1);
    assert!(world.readers[1].cache.find("name3").is_some());
    assert_eq!(world.readers[1].consumer.poll_timeout(), Nanos::NEVER);
    world.end();
}

/// Hazard A1, the whole of it: the ack is late, the lease runs out, the blocks get a new tenant, and
/// the plane reads them all the same.
#[test]
fn hazard_a1_recycled_blocks_are_never_published_under_the_old_hash() {
    let planes = [Plane::Tcp, Plane::Shm];
    for (plane, digests) in planes.into_iter().flat_map(|plane| [(plane, false), (plane, true)]) {
        let mut world = World::new(plane, true, digests);
        world.step(&Op::Save { source: 0, name: 3 });
        world.step(&Op::Start { reader: 0, source: 0, name: 3, lie: false });
        world.step(&Op::Connect { which: 0, succeeds: true });
        world.step(&Op::ToSource(0));
        world.step(&Op::Pass(28 * SECOND));
        world.step(&Op::ToReader(0));
        world.step(&Op::Read { reader: 0, which: 0 });
        world.step(&Op::Pass(3 * SECOND));
        for _ in 0..3 {
            world.step(&Op::Churn { source: 0, blocks: 10 });
        }
        world.settle();
        let (_, failure) = world.failures().pop().expect("it failed");
        let expected = if digests { "digest" } else { "lease" };
        assert_eq!(failure.reason.word(), expected);
        assert!(world.readers[0].cache.find("name3").is_none());
        world.end();
    }
}
