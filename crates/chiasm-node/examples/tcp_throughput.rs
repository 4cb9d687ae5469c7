//! How fast entries go from one node to another over tcp, beside a plain loopback stream that carries
//! the same bytes in the same run.
//!
//! ```text
//! cargo run --release -p chiasm-node --example tcp_throughput [REPETITIONS]
//! ```
//! Both nodes live in this process, each with its own thread and region; the consumer checks every
//! digest. The plain stream is one thread that writes 256 KiB at a time from one buffer and one that
//! reads into another: nothing is hashed, no entry is looked up. Rounds of the two alternate.

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
const CASES: [(u32, usize, usize); 4] =
    [(256 << 10, 16, 256), (2 << 20, 16, 64), (14 << 20, 1, 12), (64 << 20, 1, 4)];

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anything<()> {
    let repetitions: usize = std::env::args().nth(1).map_or(Ok(7), |text| text.parse())?;
    let mut config = NodeConfig::new(REGION_BYTES);
    config.listen = Some(ListenAddress::parse("127.0.0.1:0")?);
    let producer = Node::start(&config)?;
    let endpoint = producer.endpoint().ok_or("no endpoint")?.to_string();
    let mut config = NodeConfig::new(REGION_BYTES);
    config.planes = PlaneList::from_iter([Plane::Tcp]);
    config.allowed =
        Allowlist::parse([endpoint.as_str()]).map_err(|mut errors| errors.remove(0))?;
    let consumer = Node::start(&config)?;

    println!(
        "size KiB  outstanding  transfers/s   GB/s   plain GB/s   ratio   (medians of {repetitions})"
    );
    for (size, outstanding, count) in CASES {
        let names = save(&producer, size, count)?;
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for round in 0..=repetitions {
            let fetched = fetch(&producer, &consumer, &names, outstanding)?;
            let streamed = stream(u64::from(size) * names.len() as u64)?;
            // The first round warms up: connections, page tables, socket buffers.
            if round > 0 {
                ours.push(fetched);
                plain.push(streamed);
            }
        }
        let count = f64::from(u32::try_from(names.len())?);
        let bytes = f64::from(size) * count;
        let (ours, plain) = (median(&mut ours), median(&mut plain));
        println!(
            "{:8}  {outstanding:11}  {:11.0}  {:5.2}  {:11.2}  {:6.2}",
            size >> 10,
            count / ours.as_secs_f64(),
            bytes / ours.as_secs_f64() / 1e9,
            bytes / plain.as_secs_f64() / 1e9,
            plain.as_secs_f64() / ours.as_secs_f64()
        );
    }
    Ok(())
}

/// Saves as many different entries of `size` bytes as half of the region holds, at most `count`.
fn save(producer: &Node, size: u32, count: usize) -> Anything<Vec<String>> {
    let room = usize::try_from(REGION_BYTES / 2 / u64::from(size))?.clamp(1, count);
    let bytes = vec![0x5A; size as usize];
    let meta = EntryMeta::new(size / 2048, 1024, Dtype::Bfloat16).ok_or("too large")?;
    for index in 0..room {
        let mut saving = producer.reserve(&MmHash::new(&format!("{size}-{index}"))?, meta)?;
        saving.write(&bytes)?;
        saving.finish()?;
    }
    Ok((0..room).map(|index| format!("{size}-{index}")).collect())
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
    let start = Instant::now();
    let mut waiting = names.iter().enumerate();
    let mut running: Vec<(String, &str)> = Vec::new();
    let mut done = 0;
    while done < names.len() {
        let news = consumer.news();
        while running.len() < outstanding
            && let Some((index, name)) = waiting.next()
        {
            let id = format!("{index}");
            let remote = producer.announce(name).ok_or("evicted")?;
            let expected = Expectation {
                rows: None,
                width: None,
                dtype: None,
                block_size_bytes: consumer.block_size_bytes(),
                region_blocks: u32::MAX,
            };
            let announcement = Ok(Announcement::Remote(remote));
            let item = Item::new(MmHash::new(name)?, 1, false, Some(&announcement), &expected);
            consumer.track(&id, vec![item])?;
            running.push((id, name));
        }
        let mut ended = Vec::new();
        for (id, name) in std::mem::take(&mut running) {
            match consumer.ensure(&id, 1, 0) {
                Some(Decision::Wait) => running.push((id, name)),
                Some(Decision::Ready) => ended.push(id),
                other => return Err(format!("{name}: {other:?}").into()),
            }
        }
        if ended.is_empty() {
            consumer.wait(news, Duration::from_secs(1));
        }
        done += ended.len();
        for id in ended {
            consumer.finish(&id);
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

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
