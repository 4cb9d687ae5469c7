//! How fast entries go from one node to another over shm and over tcp, beside one thread that copies as
//! many bytes in pieces of the same size from one private buffer into another, and beside a plain
//! loopback stream of as many bytes.
//!
//! ```text
//! cargo run --release -p chiasm-node --example plane_throughput [REPETITIONS [SIZE_KIB]]
//! ```
//! With a size, only entries of that size go, and only over shm: for a profiler.
//!
//! All nodes live in this process, each with its own thread and region; consumers check every digest.
//! The copy and the stream look nothing up, ask nobody and hash nothing; the stream's reader takes 256 KiB
//! at a time into one buffer that stays in the cache. Rounds of the four alternate, so that
//! what else the machine does falls on all of them; medians and the best of all rounds are shown.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use chiasm_core::admission::{Decision, Item};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, Expectation};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::ListenAddress;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::{Node, NodeConfig};

const REGION_BYTES: u64 = 512 << 20;

/// Entry size, how many are outstanding, how many go in one round.
const CASES: [(usize, usize, usize); 4] =
    [(256 << 10, 16, 512), (2 << 20, 16, 96), (14 << 20, 1, 16), (64 << 20, 1, 4)];

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anything<()> {
    let repetitions: usize = std::env::args().nth(1).map_or(Ok(9), |text| text.parse())?;
    let mut config = NodeConfig::new(REGION_BYTES);
    config.listen = Some(ListenAddress::parse("127.0.0.1:0")?);
    let producer = Node::start(&config)?;
    let endpoint = producer.endpoint().ok_or("no endpoint")?.to_string();
    let consumer = |plane: Plane| -> Anything<Node> {
        let mut config = NodeConfig::new(REGION_BYTES);
        config.planes = PlaneList::from_iter([plane]);
        config.allowed =
            Allowlist::parse([endpoint.as_str()]).map_err(|mut errors| errors.remove(0))?;
        Ok(Node::start(&config)?)
    };
    let (shm, tcp) = (consumer(Plane::Shm)?, consumer(Plane::Tcp)?);

    println!("GB/s as median (best) of {repetitions}; ratios of medians (of the best) to the copy");
    println!(" size KiB  outstanding  what         transfers/s        GB/s          ratio");
    let only: Option<usize> = std::env::args().nth(2).map(|text| text.parse()).transpose()?;
    for (size, outstanding, count) in CASES {
        if only.is_some_and(|only| only << 10 != size) {
            continue;
        }
        let names = save(&producer, size, count)?;
        if only.is_some() {
            for _ in 0..repetitions {
                let time = fetch(&producer, &shm, &names, outstanding)?;
                println!("{} transfers in {time:?}", names.len());
            }
            continue;
        }
        let (from, mut to) = (vec![0xA5; size * names.len()], vec![1; size * names.len()]);
        let mut rounds: [Vec<Duration>; 4] = Default::default();
        for round in 0..=repetitions {
            let times = [
                copy(&from, &mut to, size),
                stream(u64::try_from(to.len())?)?,
                fetch(&producer, &shm, &names, outstanding)?,
                fetch(&producer, &tcp, &names, outstanding)?,
            ];
            // The first round warms up: connections, mappings, page tables, socket buffers.
            if round > 0 {
                rounds.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
            }
        }
        show(size, outstanding, names.len(), rounds)?;
    }
    Ok(())
}

fn show(size: usize, outstanding: usize, count: usize, rounds: [Vec<Duration>; 4]) -> Anything<()> {
    let bytes = f64::from(u32::try_from(size * count)?);
    let count = f64::from(u32::try_from(count)?);
    let sorted = rounds.map(|mut times| {
        times.sort_unstable();
        [times[times.len() / 2], times[0]].map(|time| time.as_secs_f64())
    });
    let [copied, ..] = sorted;
    for (what, [median, best]) in ["copy", "stream", "shm", "tcp"].into_iter().zip(sorted) {
        println!(
            "{:9}  {outstanding:11}  {what:6}  {:16.0}  {:6.2} ({:5.2})  {:5.2} ({:4.2})",
            size >> 10,
            count / median,
            bytes / median / 1e9,
            bytes / best / 1e9,
            copied[0] / median,
            copied[1] / best,
        );
    }
    Ok(())
}

/// Copies piece by piece in one thread.
fn copy(from: &[u8], to: &mut [u8], size: usize) -> Duration {
    let start = Instant::now();
    for (from, to) in from.chunks(size).zip(to.chunks_mut(size)) {
        to.copy_from_slice(std::hint::black_box(from));
    }
    std::hint::black_box(to);
    start.elapsed()
}

/// Saves as many different entries of `size` bytes as half of the region holds, at most `count`.
fn save(producer: &Node, size: usize, count: usize) -> Anything<Vec<String>> {
    let room = usize::try_from(REGION_BYTES / 2)? / size;
    let names: Vec<String> = (0..count.min(room)).map(|index| format!("{size}-{index}")).collect();
    let bytes = vec![0x5A; size];
    let rows = u32::try_from(size / 2048)?;
    let meta = EntryMeta::new(rows, 1024, Dtype::Bfloat16).ok_or("too large")?;
    for name in &names {
        let mut saving = producer.reserve(&MmHash::new(name)?, meta)?;
        saving.write(&bytes)?;
        saving.finish()?;
    }
    Ok(names)
}

/// Fetches all entries, `outstanding` at a time, none of which the consumer has at the start.
fn fetch(
    producer: &Node,
    consumer: &Node,
    names: &[String],
    outstanding: usize,
) -> Anything<Duration> {
    for name in names {
        let _ = consumer.evict(name);
    }
    let expected = Expectation {
        rows: None,
        width: None,
        dtype: None,
        block_size_bytes: consumer.block_size_bytes(),
        region_blocks: u32::MAX,
    };
    let start = Instant::now();
    let mut waiting = names.iter();
    let mut running: Vec<&str> = Vec::new();
    let mut left = names.len();
    while left > 0 {
        while running.len() < outstanding
            && let Some(name) = waiting.next()
        {
            let offer = producer.announce(name).ok_or("evicted")?;
            let announcement = Ok(Announcement::Remote(offer));
            let item = Item::new(MmHash::new(name)?, 1, false, Some(&announcement), &expected);
            consumer.track(name, vec![item])?;
            running.push(name);
        }
        let news = consumer.news();
        let before = running.len();
        let mut failed = None;
        running.retain(|name| match consumer.ensure(name, 1, 0) {
            Some(Decision::Wait) => true,
            Some(Decision::Ready) => {
                consumer.finish(name);
                false
            }
            other => {
                failed = Some(format!("{name}: {other:?}"));
                true
            }
        });
        if let Some(failed) = failed {
            return Err(failed.into());
        }
        left -= before - running.len();
        if before == running.len() {
            consumer.wait(news, Duration::from_secs(1));
        }
    }
    Ok(start.elapsed())
}

/// Sends `bytes` over a plain loopback connection.
fn stream(bytes: u64) -> Anything<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let start = Instant::now();
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        let chunk = vec![0x5A; 256 << 10];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(chunk.len() as u64);
            sender.write_all(&chunk[..usize::try_from(length).unwrap_or(chunk.len())])?;
            left -= length;
        }
        Ok(())
    });
    let mut chunk = vec![0; 256 << 10];
    let mut total = 0;
    while total < bytes {
        match receiver.read(&mut chunk)? {
            0 => return Err("the stream ended early".into()),
            length => total += length as u64,
        }
    }
    let elapsed = start.elapsed();
    writer.join().map_err(|_| "the writer panicked")??;
    Ok(elapsed)
}
