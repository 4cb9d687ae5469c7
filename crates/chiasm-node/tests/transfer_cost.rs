//! What a transfer costs beside its bytes: allocations of all threads, system calls of the nodes' own.
//! A binary of its own, with one test, because it counts what the global allocator hands out.
#![expect(unsafe_code, reason = "a counting allocator can only be written as an unsafe impl")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chiasm_core::admission::{Decision, Item};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, Expectation};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::ListenAddress;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::{IoCounts, Node, NodeConfig};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to `System` unchanged; the counter neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const REGION_BYTES: u64 = 64 << 20;
const ENTRY_BYTES: usize = 64 << 10;
const ENTRIES: u32 = 256;
/// A test that hangs fails by its decisions.
const PATIENCE: Duration = Duration::from_secs(20);

/// A producer with [`ENTRIES`] entries, and a consumer that reads them over one plane.
struct Pair {
    producer: Node,
    consumer: Node,
    names: Vec<String>,
}

impl Pair {
    fn over(plane: Plane) -> Self {
        let mut config = NodeConfig::new(REGION_BYTES);
        config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
        let producer = Node::start(&config).unwrap();
        let endpoint = producer.endpoint().unwrap().to_string();
        let mut config = NodeConfig::new(REGION_BYTES);
        config.planes = PlaneList::from_iter([plane]);
        config.allowed = Allowlist::parse([endpoint.as_str()]).unwrap();
        let consumer = Node::start(&config).unwrap();
        let meta = EntryMeta::new(32, 1024, Dtype::Bfloat16).unwrap();
        let names: Vec<String> = (0..ENTRIES).map(|n| format!("{n:064}")).collect();
        let bytes = vec![0x5A; ENTRY_BYTES];
        for name in &names {
            let mut saving = producer.reserve(&MmHash::new(name).unwrap(), meta).unwrap();
            saving.write(&bytes).unwrap();
            saving.finish().unwrap();
        }
        Self { producer, consumer, names }
    }

    /// Reads all entries, `outstanding` at a time; the cost of one transfer.
    fn cost(&self, outstanding: usize) -> Cost {
        for name in &self.names {
            let _ = self.consumer.evict(name);
        }
        let expected = Expectation {
            rows: None,
            width: None,
            dtype: None,
            block_size_bytes: self.consumer.block_size_bytes(),
            region_blocks: u32::MAX,
        };
        // What the engine's side allocates to name an item is not part of it.
        let items: Vec<Vec<Item>> = self
            .names
            .iter()
            .map(|name| {
                let offer = Ok(Announcement::Remote(self.producer.announce(name).unwrap()));
                vec![Item::new(MmHash::new(name).unwrap(), 1, false, Some(&offer), &expected)]
            })
            .collect();
        let mut running: Vec<&str> = Vec::with_capacity(outstanding);
        let mut waiting = self.names.iter().zip(items);
        let before = self.counted();
        let allocated = ALLOCATIONS.load(Ordering::SeqCst);
        loop {
            while running.len() < outstanding
                && let Some((name, items)) = waiting.next()
            {
                self.consumer.track(name, items).unwrap();
                running.push(name);
            }
            if running.is_empty() {
                break;
            }
            let news = self.consumer.news();
            let count = running.len();
            running.retain(|name| match self.consumer.ensure(name, 1, 0) {
                Some(Decision::Wait) => true,
                decision => {
                    assert_eq!(decision, Some(Decision::Ready), "{name}");
                    self.consumer.finish(name);
                    false
                }
            });
            if running.len() == count {
                self.consumer.wait(news, PATIENCE);
            }
        }
        let allocations = per_transfer(ALLOCATIONS.load(Ordering::SeqCst) - allocated);
        let after = self.counted();
        let [producer, consumer] = [0, 1].map(|at| PerTransfer::of(before[at], after[at]));
        Cost { allocations, producer, consumer }
    }

    fn counted(&self) -> [IoCounts; 2] {
        [self.producer.io_counts(), self.consumer.io_counts()]
    }
}

fn per_transfer(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / f64::from(ENTRIES)
}

#[derive(Debug)]
struct Cost {
    allocations: f64,
    producer: PerTransfer,
    consumer: PerTransfer,
}

#[derive(Debug)]
struct PerTransfer {
    turns: f64,
    reads: f64,
    writes: f64,
    interests: f64,
    wake_ups: f64,
}

impl PerTransfer {
    fn of(before: IoCounts, after: IoCounts) -> Self {
        let each = |count: fn(&IoCounts) -> u64| per_transfer(count(&after) - count(&before));
        Self {
            turns: each(|counts| counts.turns),
            reads: each(|counts| counts.reads),
            writes: each(|counts| counts.writes),
            interests: each(|counts| counts.interests),
            wake_ups: each(|counts| counts.wake_ups),
        }
    }

    /// Whether it is no more than `most`, but for what has nothing to do with transfers (heartbeats).
    fn is_at_most(&self, most: &Self) -> bool {
        const OTHERS: f64 = 0.1;
        [
            (self.turns, most.turns),
            (self.reads, most.reads),
            (self.writes, most.writes),
            (self.interests, most.interests),
            (self.wake_ups, most.wake_ups),
        ]
        .into_iter()
        .all(|(found, most)| found <= most + OTHERS)
    }
}

/// What is needed where nothing can be done together: the most there may be. Allocations are what was
/// counted, `found` says how often the queue of what is to be written was empty before.
fn most(plane: Plane, outstanding: usize, found: &Cost) -> Cost {
    let nothing =
        PerTransfer { turns: 0.0, reads: 0.0, writes: 0.0, interests: 0.0, wake_ups: 0.0 };
    // Only sockets that are full are waited for.
    let interests = if outstanding == 1 { 0.0 } else { 1.0 };
    match plane {
        // A request, its ack, and the reader's word that it is done, which may go with the next request.
        // The consumer's thread turns for the wish and for the ack, and once more each where the engine
        // speaks while it is awake.
        Plane::Shm => Cost {
            allocations: 26.2 + 2.0 * found.consumer.writes,
            producer: PerTransfer { turns: 2.0, reads: 2.0, writes: 1.0, ..nothing },
            consumer: PerTransfer { turns: 4.0, reads: 1.0, writes: 2.0, wake_ups: 1.0, ..nothing },
        },
        // A request and its ack; on the stream a READ, and the answer's head and body, which the consumer
        // reads apart, the body in two pieces.
        _ => Cost {
            allocations: 25.2,
            producer: PerTransfer { turns: 2.0, reads: 2.0, writes: 3.0, interests, ..nothing },
            consumer: PerTransfer { turns: 5.0, reads: 4.0, writes: 2.0, wake_ups: 1.0, ..nothing },
        },
    }
}

#[test]
fn a_transfer_costs_no_more_allocations_and_system_calls_than_it_needs() {
    for plane in [Plane::Shm, Plane::Tcp] {
        let pair = Pair::over(plane);
        // Connections, mappings, and tables that get their size.
        pair.cost(16);
        for outstanding in [1, 16] {
            let cost = pair.cost(outstanding);
            let most = most(plane, outstanding, &cost);
            let holds = cost.allocations <= most.allocations
                && cost.producer.is_at_most(&most.producer)
                && cost.consumer.is_at_most(&most.consumer);
            assert!(holds, "{plane}, {outstanding} outstanding: {cost:#?}\nat most {most:#?}");
            println!("{plane}, {outstanding} outstanding: {cost:#?}");
        }
    }
}
