//! Workers and what they report, through real shared memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use chiasm_core::digest::Digest;
use chiasm_core::dispatch::{DispatchId, Order, OrderKind, Outcome, Receipt, Report};
use chiasm_region::{
    Completions, Region, RegionError, Worker, WorkerError, WorkerLife, digest_of, wake_socket,
};
use proptest::prelude::*;

use crate::child::Child;
use crate::support::{extent, no_spawns, options_for_test, pattern, rank, save_for_test};

/// A node's region, and `dir`'s.
fn node_for_test(dir: &std::path::Path) -> Region {
    let mut region = Region::create_or_attach(&options_for_test(dir)).unwrap();
    region.claim_node().unwrap();
    region
}

fn worker_for_test(dir: &std::path::Path, number: u16) -> Worker {
    Worker::attach(&options_for_test(dir), rank(number)).unwrap()
}

fn receipt(dispatch: u64) -> Receipt {
    Receipt { dispatch: DispatchId::from_u64(dispatch), ..save_for_test(0).receipt() }
}

#[test]
fn a_worker_of_another_process_saves_and_reports() {
    let dir = tempfile::tempdir().unwrap();
    let region = node_for_test(dir.path());
    let child = Child::run("work", dir.path());
    let digest = digest_of(&pattern(2500));
    let outcome = Outcome::Done(Some(digest));
    let expected = Report { rank: rank(3), receipt: save_for_test(3).receipt(), outcome };
    let mut completions = Completions::new();
    assert_eq!(completions.take(&region), [expected]);
    assert_eq!(completions.take(&region), []);
    let mut seen = vec![0; 2500];
    region.copy_out(&[extent(8, 2), extent(1, 1)], 0, &mut seen).unwrap();
    assert_eq!(seen, pattern(2500));
    assert!(child.finish().success());
}

#[test]
fn what_a_worker_reported_before_it_was_killed_counts_and_its_rank_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let region = node_for_test(dir.path());
    let mut completions = Completions::new();
    assert_eq!(completions.worker(&region, rank(3)), WorkerLife::Absent);
    let child = Child::run("work", dir.path());
    assert_eq!(completions.worker(&region, rank(3)), WorkerLife::Alive(1));
    let taken = Worker::attach(&options_for_test(dir.path()), rank(3)).unwrap_err();
    assert!(matches!(taken, RegionError::RankTaken { .. }), "{taken}");
    child.kill();
    assert_eq!(completions.worker(&region, rank(3)), WorkerLife::Absent);

    let mut next = worker_for_test(dir.path(), 3);
    assert_eq!(completions.worker(&region, rank(3)), WorkerLife::Alive(2), "another process");
    next.complete(receipt(78), Outcome::Failed).unwrap();
    let reports = completions.take(&region);
    let ids: Vec<u64> = reports.iter().map(|it| it.receipt.dispatch.as_u64()).collect();
    assert_eq!(ids, [77, 78]);
}

#[test]
fn a_rank_is_one_worker_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let region = node_for_test(dir.path());
    let completions = Completions::new();
    let worker = worker_for_test(dir.path(), 0);
    let _other = worker_for_test(dir.path(), 1);
    let error = Worker::attach(&options_for_test(dir.path()), rank(0)).unwrap_err();
    assert!(error.to_string().contains("rank 0"), "{error}");
    let _alone = no_spawns();
    drop(worker);
    assert_eq!(completions.worker(&region, rank(0)), WorkerLife::Absent);
    assert_eq!(completions.worker(&region, rank(1)), WorkerLife::Alive(1));
    worker_for_test(dir.path(), 0);
}

#[test]
fn a_full_ring_refuses_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let region = node_for_test(dir.path());
    let mut worker = worker_for_test(dir.path(), 15);
    let mut completions = Completions::new();
    for round in 0..3 {
        for number in 0..64 {
            worker.try_complete(receipt(round * 64 + number), Outcome::Done(None)).unwrap();
        }
        let refused = worker.try_complete(receipt(9999), Outcome::Done(None));
        assert_eq!(refused, Err(WorkerError::Full));
        let ids: Vec<u64> =
            completions.take(&region).iter().map(|it| it.receipt.dispatch.as_u64()).collect();
        assert_eq!(ids, (round * 64..round * 64 + 64).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_ring_is_waited_for_while_the_node_takes_reports() {
    let dir = tempfile::tempdir().unwrap();
    let region = node_for_test(dir.path());
    let mut worker = worker_for_test(dir.path(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..1000 {
                worker.complete(receipt(number), Outcome::Done(None)).unwrap();
            }
        });
        let mut completions = Completions::new();
        let mut seen = 0;
        while seen < 1000 {
            for report in completions.take(&region) {
                assert_eq!(report.receipt.dispatch.as_u64(), seen);
                seen += 1;
            }
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_node_that_sleeps_is_woken_for_each_report_and_one_that_does_not_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let region = node_for_test(dir.path());
    let mut worker = worker_for_test(dir.path(), 2);
    let mut completions = Completions::new();
    // Before there is a socket, a report is no error.
    worker.complete(receipt(0), Outcome::Failed).unwrap();
    assert!(!completions.may_sleep(&region), "a report is there");
    completions.take(&region);

    let socket = UnixDatagram::bind(wake_socket(region.path())).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    worker.complete(receipt(1), Outcome::Failed).unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err(), "an awake node is not woken");
    socket.set_nonblocking(false).unwrap();
    completions.take(&region);

    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 2..5000 {
                worker.complete(receipt(number), Outcome::Done(None)).unwrap();
                // Now and then so slowly that the node sleeps in between.
                (0..number % 40).for_each(|_| std::thread::yield_now());
            }
        });
        let (mut seen, mut slept) = (2, 0);
        while seen < 5000 {
            for report in completions.take(&region) {
                assert_eq!(report.receipt.dispatch.as_u64(), seen);
                seen += 1;
            }
            if seen < 5000 && completions.may_sleep(&region) {
                slept += 1;
                socket.recv(&mut [0; 8]).expect("no wake-up is lost");
            }
            completions.awake(&region);
        }
        assert!(slept > 0, "the test does not see a sleep");
    });
}

#[test]
fn a_worker_copies_what_it_was_ordered_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let region = node_for_test(dir.path());
    let worker = worker_for_test(dir.path(), 3);
    let save = save_for_test(3);
    let load = Order { kind: OrderKind::Load, ..save.clone() };
    let bytes = pattern(2500);
    let digest = worker.copy_in(&save, &bytes).unwrap();
    assert_eq!((digest, worker.digest(&save)), (digest_of(&bytes), Ok(digest)));
    let mut seen = vec![0; 2500];
    worker.copy_out(&load, &mut seen).unwrap();
    assert_eq!(seen, bytes);

    let kind = |kind| Err(WorkerError::Kind { kind });
    assert_eq!(worker.copy_in(&load, &bytes).map(drop), kind(OrderKind::Load));
    assert_eq!(worker.copy_out(&save, &mut seen), kind(OrderKind::Save));
    let short = Err(WorkerError::Length { ordered: 2500, given: 2499 });
    assert_eq!(worker.copy_in(&save, &bytes[..2499]).map(drop), short);
    assert_eq!(worker.copy_out(&load, &mut seen[..2499]), short);
    let foreign = Err(WorkerError::NotForUs { rank: rank(3) });
    assert_eq!(worker.copy_in(&save_for_test(2), &bytes).map(drop), foreign);
    let outside = Order { extents: vec![extent(8, 3)], ..save };
    assert!(matches!(worker.copy_in(&outside, &bytes), Err(WorkerError::Range(_))));
    assert!(matches!(worker.digest(&outside), Err(WorkerError::Range(_))));
    drop(region);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a worker that has lost its mind writes over the header area: no panic, a bounded
    /// number of reports, and the file goes as always.
    #[test]
    fn garbage_in_the_rings_is_at_worst_a_report(
        noise in prop::collection::vec((256..65_536_u64, any::<u64>()), 1..300),
        commits in prop::collection::vec((0..16_u64, 0..64_u64, 1..70_u64, any::<[u64; 6]>()), 0..200),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let region = node_for_test(dir.path());
        let file = File::options().write(true).open(region.path()).unwrap();
        for (at, value) in noise {
            file.write_all_at(&value.to_le_bytes(), at & !7).unwrap();
        }
        for (of, slot, number, words) in commits {
            let at = 4096 + of * 3840 + 128 + slot * 56;
            file.write_all_at(&number.to_le_bytes(), at).unwrap();
            for (place, word) in (1..).zip(words) {
                file.write_all_at(&word.to_le_bytes(), at + place * 8).unwrap();
            }
        }
        let mut completions = Completions::new();
        for _ in 0..3 {
            let reports = completions.take(&region);
            prop_assert!(reports.len() <= 16 * 64);
            let _ = completions.may_sleep(&region);
            completions.awake(&region);
        }
        // A worker that joins such a region works or is told that it cannot, within its patience.
        let mut worker = worker_for_test(dir.path(), 0);
        let _ = worker.try_complete(receipt(1), Outcome::Failed);
        prop_assert!(matches!(completions.worker(&region, rank(0)), WorkerLife::Alive(_)));
        drop((worker, region));
        prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_digest_of_zeroes_is_a_digest() {
    let dir = tempfile::tempdir().unwrap();
    let region = node_for_test(dir.path());
    let mut worker = worker_for_test(dir.path(), 0);
    let outcome = Outcome::Done(Some(Digest([0; 16])));
    worker.complete(receipt(1), outcome).unwrap();
    assert_eq!(Completions::new().take(&region)[0].outcome, outcome);
}
