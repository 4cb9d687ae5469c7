//! Entries from one node to another, beside what one thread copies and what one stream carries.
//!
//! All nodes live in this process, each with its own thread and region; every digest is checked. The
//! copy is of as many bytes in pieces of the same size between two private buffers, and the stream is a
//! loopback connection whose reader keeps one buffer in the cache: neither looks anything up, asks
//! anybody or hashes anything. All of them alternate in rounds. Over nixl both nodes have a helper process;
//! where NIXL is not found that plane is left out.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_nixl::probe;
use chiasm_node::{NixlConfig, Node};
use serde_json::{Value, json};

use super::entries::{
    End, Pattern, ROW_BYTES, Requests, Wanted, consumer_config, producer_config, rows_of,
};
use super::stats::{median, number};
use super::{Effort, Rows};
use crate::commands::nixl::NixlArguments;

const SIZES: [u64; 4] = [256 << 10, 2 << 20, 14 << 20, 64 << 20];
const OUTSTANDING: [usize; 3] = [1, 16, 96];
/// Bytes that one round moves, more if more have to be outstanding.
const ROUND_BYTES: u64 = 256 << 20;
/// What all sources together may be: 96 of 64 MiB are not measured.
const MOST_BYTES: u64 = 1400 << 20;
const MOST_BYTES_QUICK: u64 = 256 << 20;
const MOST_BYTES_SMOKE: u64 = 8 << 20;
const ROUNDS: usize = 6;
/// Far longer than the end of a grant takes.
const GRANTS_END: Duration = Duration::from_mins(1);
const STREAM_CHUNK_BYTES: usize = 256 << 10;
/// NIXL takes a fifth of a second to say that it is there.
const NIXL_LIMIT: Duration = Duration::from_secs(30);

/// A way from one node to the other.
struct Way {
    what: &'static str,
    reader: Node,
    /// The bound that it is set beside, by its place among the bounds.
    bound: usize,
    ratio: &'static str,
}

pub(super) fn measure(
    effort: Effort,
    nixl: &NixlArguments,
    rows: &mut Rows<'_>,
) -> anyhow::Result<()> {
    let most_bytes = effort.choose(MOST_BYTES, MOST_BYTES_QUICK, MOST_BYTES_SMOKE);
    // Entries do not fill a region to its last block.
    let region_bytes = most_bytes + most_bytes / 16;
    let mut config = producer_config(region_bytes)?;
    let nixl = nixl_config(nixl)?;
    config.planes = Plane::ALL.into_iter().collect();
    config.nixl.clone_from(&nixl);
    if nixl.is_none() {
        config.planes = config.planes.without(Plane::Nixl);
    }
    let producer = Node::start(&config)?;
    let endpoint = producer.endpoint().context("no endpoint")?.clone();
    let reader = |plane: Plane| -> anyhow::Result<Node> {
        let planes = PlaneList::from_iter([plane]);
        let allowed = std::slice::from_ref(&endpoint);
        let mut config = consumer_config(region_bytes, allowed, planes)?;
        config.nixl = nixl.clone().filter(|_| plane == Plane::Nixl);
        Ok(Node::start(&config)?)
    };
    let (copied, streamed) = ((0, "to_memcpy"), (1, "to_stream"));
    let mut ways = Vec::new();
    for (plane, what, (bound, ratio)) in [
        (Plane::Shm, "chiasm shm", copied),
        (Plane::Tcp, "chiasm tcp", streamed),
        (Plane::Nixl, "chiasm nixl", copied),
    ] {
        if plane != Plane::Nixl || nixl.is_some() {
            ways.push(Way { what, reader: reader(plane)?, bound, ratio });
        }
    }
    let pattern = Pattern::new();
    for size in effort.choose(&SIZES[..], &SIZES[..], &SIZES[..1]) {
        one_size(effort, *size, &producer, &ways, &pattern, rows)?;
    }
    Ok(())
}

/// How NIXL is used, if it is there.
pub(super) fn nixl_config(arguments: &NixlArguments) -> anyhow::Result<Option<NixlConfig>> {
    let config = arguments.config(PlaneList::from_iter([Plane::Nixl]))?;
    Ok(config.filter(|config| {
        let probed = probe(&config.launch, &config.settings, NIXL_LIMIT);
        if let Err(why) = &probed {
            eprintln!("chiasm bench: nixl is not measured: {why}");
        }
        probed.is_ok()
    }))
}

fn one_size(
    effort: Effort,
    size: u64,
    producer: &Node,
    ways: &[Way],
    pattern: &Pattern,
    rows: &mut Rows<'_>,
) -> anyhow::Result<()> {
    let entry_rows = rows_of(size);
    let bytes = usize::try_from(u64::from(entry_rows) * ROW_BYTES)?;
    let most = effort.choose(MOST_BYTES, MOST_BYTES_QUICK, MOST_BYTES_SMOKE) / size;
    let most = usize::try_from(most)?;
    let usual = usize::try_from(ROUND_BYTES / size)?.clamp(2, most);
    let outstanding = effort.choose(&OUTSTANDING[..], &OUTSTANDING[..2], &OUTSTANDING[..1]);
    let outstanding: Vec<usize> = outstanding.iter().copied().filter(|it| *it <= most).collect();
    let count = outstanding.iter().copied().max().unwrap_or(1).max(usual);
    let names: Vec<String> = (0..count).map(|at| format!("{size}-{at}")).collect();
    for name in &names {
        pattern.save(producer, name, entry_rows)?;
    }
    let offers = wanted(producer, &names)?;
    let plain = usual.min(count);
    let (from, mut to) = (vec![0xA5; bytes * plain], vec![1; bytes * plain]);
    for outstanding in outstanding {
        let offers = offers.get(..usual.max(outstanding)).unwrap_or(&offers);
        let mut times = vec![Vec::new(); 2 + ways.len()];
        for round in 0..=effort.choose(ROUNDS, 2, 1) {
            let mut all = vec![
                copy(&from, &mut to, bytes).as_secs_f64() / number(plain),
                stream(bytes * plain)?.as_secs_f64() / number(plain),
            ];
            for way in ways {
                let mut requests = Requests::new(&way.reader);
                let took = fetch(&mut requests, offers, outstanding)?;
                all.push(took.as_secs_f64() / number(offers.len()));
            }
            // The first warms up: connections, mappings, page tables, socket buffers.
            if round > 0 {
                times.iter_mut().zip(all).for_each(|(list, it)| list.push(it));
            }
        }
        let case = json!({ "size_bytes": size, "outstanding": outstanding });
        let medians: Vec<f64> = times.iter().map(|times| median(times)).collect();
        let whats = ["memcpy", "loopback stream"].into_iter().chain(ways.iter().map(|it| it.what));
        for (what, seconds) in whats.zip(&medians) {
            rows.add(what, &case, "transfers_per_s", 1.0 / seconds)?;
            rows.add(what, &case, "gb_per_s", number(bytes) / seconds / 1e9)?;
        }
        for (way, seconds) in ways.iter().zip(&medians[2..]) {
            rows.add(way.what, &case, way.ratio, medians[way.bound] / seconds)?;
            longest_call(way, offers, outstanding, &case, rows)?;
        }
    }
    evict(producer, &names)
}

/// The last grants end when their readers' word has come.
fn evict(producer: &Node, names: &[String]) -> anyhow::Result<()> {
    let end = Instant::now() + GRANTS_END;
    for name in names {
        while !producer.evict(name) {
            ensure!(Instant::now() < end, "{name} is still in use");
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// What the engine's thread spends on one call at most, in a round of its own.
fn longest_call(
    way: &Way,
    offers: &[Wanted],
    outstanding: usize,
    case: &Value,
    rows: &mut Rows<'_>,
) -> anyhow::Result<()> {
    let mut requests = Requests::watched(&way.reader);
    fetch(&mut requests, offers, outstanding)?;
    let longest = requests.longest_call().unwrap_or_default();
    rows.add(way.what, case, "longest_call_cpu_ms", longest.as_secs_f64() * 1e3)
}

fn wanted(producer: &Node, names: &[String]) -> anyhow::Result<Vec<Wanted>> {
    let offer = |name: &String| {
        let offer = producer.announce(name).context("evicted")?;
        Ok(Wanted { name: name.clone(), offer, local_input: false })
    };
    names.iter().map(offer).collect()
}

fn fetch(
    requests: &mut Requests<'_>,
    offers: &[Wanted],
    outstanding: usize,
) -> anyhow::Result<Duration> {
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
