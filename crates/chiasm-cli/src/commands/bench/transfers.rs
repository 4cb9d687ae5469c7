//! Entries from one node to another, beside what one thread copies and what one stream carries.
//!
//! Both nodes live in this process, each with its own thread and region; every digest is checked. The
//! copy is of as many bytes in pieces of the same size between two private buffers, and the stream is a
//! loopback connection whose reader keeps one buffer in the cache: neither looks anything up, asks
//! anybody or hashes anything. All four alternate in rounds.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::Node;
use serde_json::json;

use super::entries::{
    End, Pattern, ROW_BYTES, Requests, Wanted, consumer_config, producer, rows_of,
};
use super::stats::{median, number};
use super::{Effort, Rows};

const SIZES: [u64; 4] = [256 << 10, 2 << 20, 14 << 20, 64 << 20];
const OUTSTANDING: [usize; 3] = [1, 16, 96];
/// Bytes that one round moves, if there are enough outstanding.
const ROUND_BYTES: u64 = 256 << 20;
const ROUNDS: usize = 10;
const REGION_BYTES: u64 = 1 << 30;
const STREAM_CHUNK_BYTES: usize = 256 << 10;

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    let rounds = effort.of(ROUNDS).max(3);
    let producer = producer(REGION_BYTES)?;
    let endpoint = producer.endpoint().context("no endpoint")?.clone();
    let reader = |plane: Plane| -> anyhow::Result<Node> {
        let planes = PlaneList::from_iter([plane]);
        Ok(Node::start(&consumer_config(REGION_BYTES, std::slice::from_ref(&endpoint), planes)?)?)
    };
    let (shm, tcp) = (reader(Plane::Shm)?, reader(Plane::Tcp)?);
    let pattern = Pattern::new();
    for size in SIZES {
        let entry_rows = rows_of(size);
        let bytes = usize::try_from(u64::from(entry_rows) * ROW_BYTES)?;
        let count = usize::try_from((ROUND_BYTES / size).max(2))?;
        let names: Vec<String> = (0..count).map(|at| format!("{size}-{at}")).collect();
        for name in &names {
            pattern.save(&producer, name, entry_rows)?;
        }
        let offers = wanted(&producer, &names)?;
        let (from, mut to) = (vec![0xA5; bytes * count], vec![1; bytes * count]);
        for outstanding in OUTSTANDING.into_iter().filter(|many| *many == 1 || *many < count) {
            let mut times: [Vec<f64>; 4] = Default::default();
            for round in 0..=rounds {
                let all = [
                    copy(&from, &mut to, bytes),
                    stream(bytes * count)?,
                    fetch(&shm, &offers, outstanding)?,
                    fetch(&tcp, &offers, outstanding)?,
                ];
                // The first warms up: connections, mappings, page tables, socket buffers.
                if round > 0 {
                    times.iter_mut().zip(all).for_each(|(list, it)| list.push(it.as_secs_f64()));
                }
            }
            let case = json!({ "size_bytes": size, "outstanding": outstanding });
            let whats = ["memcpy", "loopback stream", "chiasm shm", "chiasm tcp"];
            let medians = times.map(|times| median(&times));
            for (what, seconds) in whats.into_iter().zip(medians) {
                rows.add(what, &case, "transfers_per_s", number(count) / seconds)?;
                rows.add(what, &case, "gb_per_s", number(bytes * count) / seconds / 1e9)?;
            }
            rows.add("chiasm shm", &case, "to_memcpy", medians[0] / medians[2])?;
            rows.add("chiasm tcp", &case, "to_stream", medians[1] / medians[3])?;
        }
        for name in &names {
            ensure!(producer.evict(name), "{name} is still in use");
        }
    }
    Ok(())
}

fn wanted(producer: &Node, names: &[String]) -> anyhow::Result<Vec<Wanted>> {
    let offer = |name: &String| {
        let offer = producer.announce(name).context("evicted")?;
        Ok(Wanted { name: name.clone(), offer, local_input: false })
    };
    names.iter().map(offer).collect()
}

fn fetch(node: &Node, offers: &[Wanted], outstanding: usize) -> anyhow::Result<Duration> {
    let mut requests = Requests::new(node);
    let mut waiting = offers.iter();
    let start = Instant::now();
    loop {
        while requests.running() < outstanding
            && let Some(wanted) = waiting.next()
        {
            requests.start(wanted.clone())?;
        }
        if requests.running() == 0 {
            return Ok(start.elapsed());
        }
        requests.wait(|_, wanted, end, _| {
            ensure!(end == End::Ready, "{}: {end:?}", wanted.name);
            Ok(())
        })?;
    }
}

fn copy(from: &[u8], to: &mut [u8], size: usize) -> Duration {
    let start = Instant::now();
    for (from, to) in from.chunks(size).zip(to.chunks_mut(size)) {
        to.copy_from_slice(std::hint::black_box(from));
    }
    std::hint::black_box(to);
    start.elapsed()
}

fn stream(bytes: usize) -> anyhow::Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let start = Instant::now();
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        let chunk = vec![0x5A; STREAM_CHUNK_BYTES];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(chunk.len());
            sender.write_all(&chunk[..now])?;
            left -= now;
        }
        Ok(())
    });
    let mut chunk = vec![0; STREAM_CHUNK_BYTES];
    let mut total = 0;
    while total < bytes {
        let count = receiver.read(&mut chunk)?;
        ensure!(count > 0, "the stream ended early");
        total += count;
    }
    let elapsed = start.elapsed();
    writer.join().map_err(|_| anyhow!("the writer panicked"))??;
    Ok(elapsed)
}
