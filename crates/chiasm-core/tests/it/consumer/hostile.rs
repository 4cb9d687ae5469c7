//! A producer that sends anything: nothing panics, nothing leaks, nothing wrong is published (S4, S7).

use chiasm_core::consumer::{FailureReason, ReadEnd};
use chiasm_core::digest::Digest;
use chiasm_core::time::Nanos;
use chiasm_core::wire::AckStatus;
use proptest::prelude::*;

use super::{DIGEST, World, ack_for, at, landed, nack, near, wanted};

#[derive(Clone, Debug)]
enum Op {
    Start {
        hash: u8,
        blocks: u32,
    },
    Cancel(usize),
    Up,
    Down,
    /// An answer to one of the requests so far, with some bytes changed.
    Ack {
        request: usize,
        blocks: u32,
        changes: Vec<(usize, u8)>,
        cut: Option<usize>,
    },
    Nack {
        request: usize,
        status: usize,
    },
    Raw(Vec<u8>),
    ReadEnded {
        read: usize,
        end: u8,
    },
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let index = 0..256_usize;
    let changes = prop::collection::vec((0..400_usize, any::<u8>()), 0..4);
    let op = prop_oneof![
        6 => (0..4_u8, 1..5_u32).prop_map(|(hash, blocks)| Op::Start { hash, blocks }),
        1 => index.clone().prop_map(Op::Cancel),
        2 => Just(Op::Up),
        1 => prop::bool::weighted(0.3).prop_map(|yes| if yes { Op::Down } else { Op::Up }),
        8 => (index.clone(), 1..5_u32, changes, prop::option::weighted(0.1, 0..400_usize)).prop_map(
            |(request, blocks, changes, cut)| Op::Ack { request, blocks, changes, cut }
        ),
        1 => (index.clone(), 1..6_usize).prop_map(|(request, status)| Op::Nack { request, status }),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Op::Raw),
        5 => (index, 0..5_u8).prop_map(|(read, end)| Op::ReadEnded { read, end }),
        1 => (0..20_000_000_000_u64).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 0..100)
}

struct Run {
    world: World,
    now: u64,
    asked: usize,
    /// Reads whose end was not reported yet, by their index.
    open: Vec<usize>,
    told: usize,
}

impl Run {
    fn step(&mut self, op: &Op) {
        let now = at(self.now);
        match op {
            Op::Start { hash, blocks } => {
                self.world.start(now, &wanted(&format!("h{hash}"), *blocks));
                self.asked += 1;
            }
            Op::Cancel(index) => {
                if let Some(index) = index.checked_rem(self.asked) {
                    self.world.cancel(chiasm_core::consumer::TransferId(index as u64));
                }
            }
            Op::Up => self.world.up(now, &near()),
            Op::Down => self.world.down(&near(), &FailureReason::Refused),
            Op::Ack { request, blocks, changes, cut } => {
                let Some(index) = request.checked_rem(self.world.sent.len()) else { return };
                let sent = self.world.sent[index].clone();
                let mut bytes = ack_for(&sent, *blocks).encode();
                for (place, byte) in changes {
                    let place = place % bytes.len();
                    bytes[place] = *byte;
                }
                bytes.truncate(cut.unwrap_or(usize::MAX));
                self.world.receive(now, &near(), &bytes);
            }
            Op::Nack { request, status } => {
                let Some(index) = request.checked_rem(self.world.sent.len()) else { return };
                let sent = self.world.sent[index].clone();
                let bytes = nack(&sent, AckStatus::ALL[*status], "quota").encode();
                self.world.receive(now, &near(), &bytes);
            }
            Op::Raw(bytes) => self.world.receive(now, &near(), bytes),
            Op::ReadEnded { read, end } => {
                if let Some(index) = read.checked_rem(self.open.len()) {
                    self.end_read(index, *end);
                }
            }
            Op::Pass(nanos) => {
                self.now += nanos;
                self.world.timeout(at(self.now));
            }
        }
        for _ in std::mem::take(&mut self.world.closed) {
            self.world.down(&near(), &FailureReason::Lost("closed".into()));
        }
        self.open.extend(self.told..self.world.reads.len());
        self.told = self.world.reads.len();
        for finished in self.world.finished.drain(..) {
            let Ok(arrived) = finished.outcome else { continue };
            let entry = self.world.cache.entry(arrived.entry).expect("published just now");
            assert_eq!(entry.hash(), &finished.hash);
        }
    }

    fn end_read(&mut self, index: usize, end: u8) {
        let order = self.world.reads[self.open.swap_remove(index)].clone();
        let blocks = u32::try_from(order.bytes / 64).unwrap();
        let wrong = Digest([end; 16]);
        let end = match end {
            0 => ReadEnd::Failed(FailureReason::Plane("reset".into())),
            1 => landed(blocks, Some(wrong)),
            2 => landed(blocks + 1, Some(DIGEST)),
            3 => landed(blocks, None),
            _ => landed(blocks, Some(DIGEST)),
        };
        self.world.ended(at(self.now), order.transfer, end);
    }

    fn end(&mut self) {
        self.step(&Op::Down);
        while !self.open.is_empty() {
            self.end_read(0, 0);
        }
        self.step(&Op::Pass(0));
        assert_eq!(self.world.consumer.live_transfers(), 0);
        assert_eq!(self.world.consumer.poll_timeout(), Nanos::NEVER);
        assert!(!self.world.cache.has_held_entries());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_hostile_producer_costs_only_its_own_transfers(ops in ops()) {
        let mut run =
            Run { world: World::new(12), now: 0, asked: 0, open: Vec::new(), told: 0 };
        for op in &ops {
            run.step(op);
        }
        run.end();
    }
}
