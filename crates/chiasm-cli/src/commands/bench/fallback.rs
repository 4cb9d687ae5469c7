//! How long an item with local input waits before the engine is told to encode it, with a producer that
//! refuses connections, swallows them, or takes them and says nothing.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use chiasm_core::announcement::RemoteAnnouncement;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::{Endpoint, Host};
use chiasm_core::entry::EntryMeta;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::Node;
use serde_json::json;

use super::entries::{End, ROW_BYTES, Requests, Wanted, consumer_config};
use super::stats::median;
use super::{Effort, Rows};

const REGION_BYTES: u64 = 16 << 20;
const ROUNDS: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    let refused = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        anyhow::Ok((listener.local_addr()?, ()))
    };
    one("refused", effort.of(ROUNDS), rows, refused)?;
    one("swallowed", effort.of(3), rows, swallowing)
}

/// `make` gives the address of a producer that is not there, and what keeps it so.
fn one<T>(
    kind: &str,
    rounds: usize,
    rows: &mut Rows<'_>,
    make: impl Fn() -> anyhow::Result<(SocketAddr, T)>,
) -> anyhow::Result<()> {
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let (address, kept) = make()?;
        let port = NonZeroU16::new(address.port()).context("no port")?;
        let source = Endpoint::new(Host::parse("127.0.0.1")?, port);
        let planes = PlaneList::from_iter([Plane::Tcp]);
        let mut config = consumer_config(REGION_BYTES, std::slice::from_ref(&source), planes)?;
        config.connect_timeout = CONNECT_TIMEOUT;
        let node = Node::start(&config)?;
        let meta = EntryMeta::new(4, 3584, Dtype::Bfloat16).context("too large")?;
        let offer = RemoteAnnouncement::of_entry(source, &meta, ROW_BYTES).context("no offer")?;
        let mut requests = Requests::new(&node);
        requests.start(Wanted { name: "absent".into(), offer, local_input: true })?;
        requests.wait(|_, _, end, took| {
            ensure!(end == End::Fallback, "{kind}: {end:?}");
            seconds.push(took.as_secs_f64());
            Ok(())
        })?;
        drop(kept);
    }
    let case = json!({ "producer": kind, "connect_timeout_s": CONNECT_TIMEOUT.as_secs() });
    rows.add("chiasm", &case, "to_fallback_s", median(&seconds))
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
