//! The ring and the wake-up under loom: every interleaving, and every stale value that the orderings
//! allow, of small worlds. Part of the ordinary tests.
//!
//! Loom runs loads in program order: it cannot show a load that a weakly ordered machine delays past a
//! later store. That is what the release and acquire of the number of records taken are for, and no
//! test here fails without them.
//!
//! `LOOM_LOG=trace cargo test -p chiasm-region --lib ring::model` shows the path to a failure.

use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;
use crate::sleep;

#[derive(Clone)]
struct LoomWords(Arc<Vec<AtomicU64>>);

impl LoomWords {
    fn new(words: usize) -> Self {
        Self(Arc::new((0..words).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Words for LoomWords {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.0[word].load(order)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.0[word].store(value, order);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// Two slots of two words: enough to go round and to tear.
type SmallRing = Ring<LoomWords, 2, 2>;

fn ring() -> SmallRing {
    Ring(LoomWords::new(SmallRing::WORDS_IN_ALL))
}

fn share(ring: &SmallRing) -> SmallRing {
    Ring(ring.0.clone())
}

fn record(number: u64) -> [u64; 2] {
    [number + 100, !(number + 100)]
}

#[test]
fn records_come_whole_once_and_in_order_through_a_ring_that_fills() {
    const RECORDS: u64 = 3;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = ring();
        let other_end = share(&ring);
        let worker = thread::spawn(move || {
            let mut produced = 0;
            while produced < RECORDS {
                let next = record(produced);
                if other_end.push(&mut produced, next) == Err(Full) {
                    thread::yield_now();
                }
            }
        });
        let mut consumed = 0;
        while consumed < RECORDS {
            let expected = record(consumed);
            match ring.pop(&mut consumed) {
                Some(found) => assert_eq!(found, expected),
                None => thread::yield_now(),
            }
        }
        worker.join().unwrap();
        assert_eq!(ring.pop(&mut consumed), None);
    });
}

#[test]
fn a_new_producer_goes_on_where_the_dead_one_had_committed() {
    loom::model(|| {
        let ring = ring();
        let mut first = ring.take_over();
        ring.push(&mut first, record(0)).unwrap();
        // Killed in the middle of its second record: the words are there, the commit is not.
        ring.0.store(SmallRing::slot(1) + 1, 7, Ordering::Relaxed);
        let second = share(&ring);
        let worker = thread::spawn(move || {
            let mut produced = second.take_over();
            assert_eq!(produced, 1);
            second.push(&mut produced, record(1)).unwrap();
        });
        let mut consumed = 0;
        while consumed < 2 {
            let expected = record(consumed);
            match ring.pop(&mut consumed) {
                Some(found) => assert_eq!(found, expected),
                None => thread::yield_now(),
            }
        }
        worker.join().unwrap();
        assert_eq!(ring.life(), 2);
    });
}

/// The wake-up socket: a datagram that is there stays until it is taken.
#[derive(Default)]
struct Socket {
    datagrams: Mutex<u32>,
    came: Condvar,
}

impl Socket {
    fn send(&self) {
        *self.datagrams.lock().unwrap() += 1;
        self.came.notify_one();
    }

    fn wait(&self) {
        let mut datagrams = self.datagrams.lock().unwrap();
        while *datagrams == 0 {
            datagrams = self.came.wait(datagrams).unwrap();
        }
        *datagrams = 0;
    }
}

/// A node that sleeps although a record is there would never wake: loom finds the deadlock.
#[test]
fn no_wake_up_is_lost() {
    const WORKERS: usize = 2;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let board = LoomWords::new(sleep::BOARD_WORDS);
        let rings: [SmallRing; WORKERS] = std::array::from_fn(|_| ring());
        let socket = Arc::new(Socket::default());
        let workers: Vec<_> = rings
            .iter()
            .map(|ring| {
                let (ring, board, socket) = (share(ring), board.clone(), Arc::clone(&socket));
                thread::spawn(move || {
                    ring.push(&mut 0, record(0)).unwrap();
                    if sleep::must_wake(&board) {
                        socket.send();
                    }
                })
            })
            .collect();
        let mut consumed = [0; WORKERS];
        loop {
            for (ring, consumed) in rings.iter().zip(&mut consumed) {
                while ring.pop(consumed).is_some() {}
            }
            if consumed == [1; WORKERS] {
                break;
            }
            let records =
                || rings.iter().zip(&consumed).any(|(ring, &consumed)| ring.has_record(consumed));
            if sleep::may_sleep(&board, records) {
                socket.wait();
            }
            sleep::awake(&board);
        }
        for worker in workers {
            worker.join().unwrap();
        }
    });
}
