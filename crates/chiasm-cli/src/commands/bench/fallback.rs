//! How long an item with local input waits before the engine is told to encode it: with a producer that
//! refuses connections or swallows them, and with one that has been read from and is then killed or stopped.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use chiasm_core::announcement::RemoteAnnouncement;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::{Endpoint, Host};
use chiasm_core::entry::EntryMeta;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::Node;
use chiasm_region::reclaim_stale;
use rustix::process::Signal;
use serde_json::json;

use super::entries::{End, ROW_BYTES, Requests, Wanted, consumer_config};
use super::fleet::{Process, wanted};
use super::stats::median;
use super::{Effort, Rows};

const REGION_BYTES: u64 = 16 << 20;
const ROUNDS: usize = 10;

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    let refused = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        anyhow::Ok((listener.local_addr()?, ()))
    };
    let few = effort.choose(3, 1, 1);
    add(rows, "refused", &absent(effort.of(ROUNDS), refused)?)?;
    add(rows, "killed", &lost(few, Signal::KILL)?)?;
    // Seconds each, by their nature.
    if effort != Effort::Smoke {
        add(rows, "swallowed", &absent(few, swallowing)?)?;
        add(rows, "stopped", &lost(few, Signal::STOP)?)?;
    }
    Ok(())
}

fn add(rows: &mut Rows<'_>, producer: &str, seconds: &[f64]) -> anyhow::Result<()> {
    rows.add("chiasm", &json!({ "producer": producer }), "to_fallback_s", median(seconds))
}

/// `make` gives the address of a producer that is not there, and what keeps it so.
fn absent<T>(
    rounds: usize,
    make: impl Fn() -> anyhow::Result<(SocketAddr, T)>,
) -> anyhow::Result<Vec<f64>> {
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let (address, kept) = make()?;
        let port = NonZeroU16::new(address.port()).context("no port")?;
        let source = Endpoint::new(Host::parse("127.0.0.1")?, port);
        let meta = EntryMeta::new(4, 3584, Dtype::Bfloat16).context("too large")?;
        let offer = RemoteAnnouncement::of_entry(source, &meta, ROW_BYTES).context("no offer")?;
        let absent = Wanted { name: "absent".into(), offer, local_input: true };
        seconds.push(fallback(&reader(&absent)?, absent)?);
        drop(kept);
    }
    Ok(seconds)
}

/// A producer in a process of its own, which has been read from before the signal comes.
fn lost(rounds: usize, signal: Signal) -> anyhow::Result<Vec<f64>> {
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let mut producer = Process::start(&["fleet-producer", "0"], Effort::Smoke)?;
        let mut offers = wanted(&producer.line()?)?.into_iter();
        let (first, second) = (offers.next(), offers.next());
        let first = first.context("nothing is announced")?;
        let node = reader(&first)?;
        let mut requests = Requests::new(&node);
        requests.start(first)?;
        requests.wait(|_, _, end, _| {
            ensure!(end == End::Ready, "{end:?}");
            Ok(())
        })?;
        producer.end(signal)?;
        let took = fallback(&node, second.context("nothing else is announced")?);
        producer.go_on()?;
        seconds.push(took?);
    }
    // What the killed ones have left.
    reclaim_stale(Path::new("/dev/shm"))?;
    Ok(seconds)
}

fn reader(wanted: &Wanted) -> anyhow::Result<Node> {
    let planes = PlaneList::from_iter([Plane::Shm, Plane::Tcp]);
    let allowed = std::slice::from_ref(&wanted.offer.source);
    Ok(Node::start(&consumer_config(REGION_BYTES, allowed, planes)?)?)
}

fn fallback(node: &Node, wanted: Wanted) -> anyhow::Result<f64> {
    let mut requests = Requests::new(node);
    let mut seconds = 0.0;
    requests.start(wanted)?;
    requests.wait(|_, wanted, end, took| {
        ensure!(end == End::Fallback, "{}: {end:?}", wanted.name);
        seconds = took.as_secs_f64();
        Ok(())
    })?;
    Ok(seconds)
}

/// A listener whose queue is full: who connects hears nothing.
fn swallowing() -> anyhow::Result<(SocketAddr, Vec<Box<dyn std::any::Any>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    rustix::net::listen(&listener, 0)?;
    let address = listener.local_addr()?;
    let mut kept: Vec<Box<dyn std::any::Any>> = vec![Box::new(listener)];
    for _ in 0..8 {
        if let Ok(filler) = TcpStream::connect_timeout(&address, Duration::from_millis(20)) {
            kept.push(Box::new(filler));
        }
    }
    Ok((address, kept))
}
