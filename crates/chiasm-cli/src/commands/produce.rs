//! `chiasm produce`: serve encodings from a store.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use chiasm_core::announcement::OutgoingAnnouncement;
use chiasm_core::byte_size::ByteSize;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::{Host, ListenAddress};
use chiasm_core::producer::ProducerLimits;
use chiasm_node::{Fault, Node, NodeConfig};
use clap::Args;
use serde_json::{Map, Value, json};

use super::identity::IdentityArguments;
use super::metrics::MetricsArguments;
use super::nixl::NixlArguments;
use super::stop::StopSignal;
use super::{planes, progress, table};
use crate::exit::{Failure, say};
use crate::store::{self, StoredEncoding};

/// Bytes copied from a file into the region at once.
const CHUNK_BYTES: usize = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  A producer, and a consumer that allows the endpoint that it has printed:
    chiasm produce store --announce params.json
    chiasm fetch --params params.json --allow 127.0.0.1:40123 --out copy";

/// Load encodings and serve them to consumers until a signal comes.
///
/// PATH is a store as vLLM's ECExampleConnector writes it: a directory with one directory per
/// mm_hash, each with the file encoder_cache.safetensors (tensor "ec_cache", [rows, width]). One such
/// mm_hash directory or file works as well.
///
/// The command prints "ready HOST:PORT" on standard error once it serves, and writes the
/// ec_transfer_params object, as a vLLM producer would return it, to --announce or to standard
/// output. A consumer has to allow HOST:PORT before it reads anything.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES)]
pub(crate) struct ProduceCommand {
    /// Stores, mm_hash directories or encoder_cache.safetensors files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Where to serve. Port 0 is chosen by the system. A wildcard such as 0.0.0.0 is refused: what is
    /// bound is what is announced.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,

    /// Host to announce, where consumers reach this one under another name or address.
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,

    /// Size of the shared memory region, for example 4GiB. Default: just enough for PATH.
    #[arg(long, value_name = "SIZE")]
    region: Option<ByteSize>,

    /// Write the ec_transfer_params object to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    announce: Option<PathBuf>,

    /// Stop after so many seconds (fractions allowed). Default: when a signal comes.
    #[arg(long = "for", value_name = "SECONDS", value_parser = super::number::seconds)]
    duration: Option<Duration>,

    /// When it is to stop: refuse new requests, and wait so many seconds at most until what consumers
    /// are reading has been read. A second signal ends the wait.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = super::number::seconds)]
    drain: Duration,

    /// Planes to serve, separated by commas: shm, nixl, tcp. The consumer's order of preference decides.
    /// An upstream consumer (vLLM's ECCPUConnector) reads over nixl only.
    #[arg(long, value_name = "LIST", default_value = planes::DEFAULT)]
    planes: String,

    /// Modality that the announcement names: image, audio or video.
    #[arg(long, value_name = "NAME", default_value = "image")]
    modality: String,

    /// FOR TESTS: misbehave. KIND is missing, incompat, not-ready:N, silent, garbage, die-before-ack,
    /// die-after-ack, slow-bytes, wrong-extents, wrong-region, wrong-life, wild-extents, wrong-bytes or
    /// late-ack:SECONDS.
    #[arg(long, value_name = "KIND", help_heading = "For tests")]
    fault: Option<Fault>,

    /// FOR TESTS: let go of what a consumer was granted after so many seconds instead of 30. An upstream
    /// consumer counts on 30.
    #[arg(long, value_name = "SECONDS", value_parser = super::number::seconds, help_heading = "For tests")]
    lease: Option<Duration>,

    #[command(flatten)]
    metrics: MetricsArguments,

    #[command(flatten)]
    identity: IdentityArguments,

    #[command(flatten)]
    nixl: NixlArguments,
}

/// Runs the command.
pub(crate) fn run(command: &ProduceCommand, json: bool) -> Result<(), Failure> {
    let stop = StopSignal::install()?;
    let (config, encodings) = prepare(command).map_err(Failure::Input)?;
    // One of several that is missing is for the node to tell: it goes on looking for it.
    if config.planes.len() == 1 {
        planes::missing_nixl(&config)?;
    }
    let node = Node::start(&config)?;
    // Dropped before the node.
    let _metrics = command.metrics.serve(&node)?;
    load(&node, &encodings, &stop)?;
    if stop.came() {
        return Ok(());
    }
    announce(command, &node, &encodings, json).map_err(Failure::Work)?;
    let endpoint = node.endpoint().ok_or_else(|| Failure::work(anyhow!("no endpoint")))?;
    say(format_args!("ready {endpoint}"));
    stop.wait(command.duration);
    drain(&node, command.drain, &stop);
    let counters = node.producer_counters();
    say(format_args!(
        "stopped: {} granted, {} read over tcp, {} given back, {} refused, {} expired",
        counters.granted,
        counters.completed,
        counters.done,
        counters.nacks.iter().sum::<u64>(),
        counters.expired
    ));
    Ok(())
}

/// Lets consumers read to the end what they have been granted.
fn drain(node: &Node, limit: Duration, stop: &StopSignal) {
    let live = node.live_grants();
    if live > 0 {
        let limit = limit.as_secs_f64();
        say(format_args!("draining: waiting for {live} granted reads, at most {limit} s"));
    }
    let left = node.drain(limit, || !stop.came_again());
    if left > 0 {
        say(format_args!("draining: {left} granted reads were cut off"));
    }
}

/// Everything that can be wrong with the input is found before anything is made.
fn prepare(command: &ProduceCommand) -> anyhow::Result<(NodeConfig, Vec<StoredEncoding>)> {
    let identity = command.identity.identity()?;
    let listen = ListenAddress::parse(&command.listen).context("--listen")?;
    let advertise = command.advertise.as_deref().map(Host::parse).transpose();
    let advertise = advertise.context("--advertise")?;
    if let Some(file) = &command.announce {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let there = parent.is_none_or(Path::is_dir) && !file.is_dir();
        ensure!(there, "--announce {}: no file in a directory that exists", file.display());
    }
    let encodings = find(&command.paths)?;

    let block = identity.block_size_bytes;
    let padded = encodings.iter().map(|encoding| padded(encoding, block));
    let needed = padded.fold(0, u64::saturating_add);
    let region_bytes = command.region.map_or(needed.max(block), |size| size.0);
    // Encodings that do not fit together would evict each other before anybody has read them.
    if region_bytes < needed {
        bail!(
            "--region {} is too small: the {} encodings need {} ({needed} bytes)",
            ByteSize(region_bytes),
            encodings.len(),
            table::size(needed)
        );
    }
    let mut config = NodeConfig::new(region_bytes);
    config.identity = identity;
    config.listen = Some(listen);
    config.advertise = advertise;
    config.planes = planes::parse(&command.planes)?;
    config.nixl = command.nixl.config(config.planes)?;
    config.fault = command.fault;
    if let Some(lease) = command.lease {
        (config.lease, config.upstream_lease) = (lease, lease);
    }
    // Nothing is saved after the start, so no room has to be kept for it.
    let blocks = u32::try_from(region_bytes / block).unwrap_or(u32::MAX);
    config.producer_limits = Some(ProducerLimits {
        max_blocks_per_peer: blocks,
        max_blocks: blocks,
        ..ProducerLimits::for_region(blocks)
    });
    config.status = true;
    Ok((config, encodings))
}

fn padded(encoding: &StoredEncoding, block: u64) -> u64 {
    encoding.meta.bytes.div_ceil(block).saturating_mul(block)
}

/// The encodings at all paths. All problems are told at once; the same hash twice is one of them.
fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<StoredEncoding>> {
    let mut found: BTreeMap<String, StoredEncoding> = BTreeMap::new();
    let mut problems = Vec::new();
    for path in paths {
        let scan = store::scan(path, u64::MAX);
        problems.extend(scan.problems.iter().map(ToString::to_string));
        for encoding in scan.encodings {
            let hash = encoding.mm_hash.to_string();
            if let Some(first) = found.get(&hash) {
                problems.push(format!(
                    "{}: the encoding {} was given by {} already",
                    encoding.path.display(),
                    encoding.mm_hash.short(),
                    first.path.display()
                ));
            } else {
                found.insert(hash, encoding);
            }
        }
    }
    if problems.is_empty() && found.is_empty() {
        problems.push("no encodings were found".into());
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n       "));
    }
    Ok(found.into_values().collect())
}

fn load(node: &Node, encodings: &[StoredEncoding], stop: &StopSignal) -> Result<(), Failure> {
    let total = encodings.iter().map(|encoding| encoding.meta.bytes).sum();
    // All at once, and first: a consumer that asks before an encoding is loaded is told to ask again.
    let reserve = |encoding: &StoredEncoding| {
        node.reserve(&encoding.mm_hash, encoding.meta)
            .map_err(|error| Failure::work(anyhow!("{}: {error}", encoding.mm_hash.short())))
    };
    let saving = encodings.iter().map(reserve).collect::<Result<Vec<_>, _>>()?;
    let bar = progress::bar(total, "loading");
    let mut chunk = vec![0; CHUNK_BYTES];
    for (encoding, mut saving) in encodings.iter().zip(saving) {
        let mut reader = encoding.open().map_err(Failure::input)?;
        loop {
            if stop.came() {
                return Ok(());
            }
            let bytes = reader
                .read(&mut chunk)
                .map_err(|error| Failure::input(anyhow!("{}: {error}", encoding.path.display())))?;
            if bytes == 0 {
                break;
            }
            saving.write(&chunk[..bytes]).map_err(Failure::work)?;
            bar.inc(bytes as u64);
        }
        saving.finish().map_err(Failure::work)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Writes the `ec_transfer_params` object where it was asked for, and says what is served.
fn announce(
    command: &ProduceCommand,
    node: &Node,
    encodings: &[StoredEncoding],
    json: bool,
) -> anyhow::Result<()> {
    let mut params = Map::new();
    for (index, encoding) in (0..).zip(encodings) {
        let hash = encoding.mm_hash.as_str();
        let mut announcement = OutgoingAnnouncement::new(&command.modality, index);
        if let Some(remote) = node.announce(hash) {
            announcement = announcement.with_entry(remote, Map::new());
        }
        params.insert(hash.to_owned(), announcement.to_json());
    }
    let params = Value::Object(params);
    let text = serde_json::to_string_pretty(&params)? + "\n";
    let mut out = std::io::stdout().lock();
    match (&command.announce, json) {
        (Some(file), _) => write_file(file, &text)?,
        (None, false) => out.write_all(text.as_bytes())?,
        (None, true) => {}
    }
    if json {
        let items: Vec<Value> = encodings.iter().map(describe).collect();
        let summary = json!({
            "endpoint": node.endpoint().map(ToString::to_string),
            "region": node.region_path(),
            "block_size_bytes": node.block_size_bytes(),
            "items": items,
            "ec_transfer_params": params,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&summary)?)?;
    } else if command.announce.is_some() {
        writeln!(out, "{}", overview(encodings).trim_fmt())?;
    }
    out.flush()?;
    Ok(())
}

fn describe(encoding: &StoredEncoding) -> Value {
    json!({
        "mm_hash": encoding.mm_hash.as_str(),
        "bytes": encoding.meta.bytes,
        "shape": [encoding.meta.rows, encoding.meta.width],
        "dtype": encoding.meta.dtype.map(Dtype::name),
    })
}

fn overview(encodings: &[StoredEncoding]) -> comfy_table::Table {
    let mut table = table::table(&["mm_hash", "shape", "dtype", "size"], &["size"]);
    for encoding in encodings {
        let meta = &encoding.meta;
        table.add_row([
            encoding.mm_hash.short().to_owned(),
            format!("[{}, {}]", meta.rows, meta.width),
            meta.dtype.map_or_else(String::new, |dtype| dtype.to_string()),
            table::size(meta.bytes),
        ]);
    }
    table
}

/// Readers of the file see all of it or nothing: it gets its name when it is complete. What is there
/// and is no regular file (`/dev/stdout`, a pipe, a link) is written to instead, never replaced.
fn write_file(file: &Path, text: &str) -> anyhow::Result<()> {
    if std::fs::symlink_metadata(file).is_ok_and(|there| !there.is_file()) {
        let written = std::fs::OpenOptions::new().write(true).truncate(true).open(file);
        let written = written.and_then(|mut there| there.write_all(text.as_bytes()));
        return written.with_context(|| format!("cannot write --announce {}", file.display()));
    }
    let name =
        file.file_name().with_context(|| format!("--announce {}: no file name", file.display()))?;
    let mut draft = std::ffi::OsString::from(".");
    draft.push(name);
    draft.push(format!(".{}", std::process::id()));
    let draft = file.with_file_name(draft);
    let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written.with_context(|| format!("cannot write --announce {}", file.display()))
}
