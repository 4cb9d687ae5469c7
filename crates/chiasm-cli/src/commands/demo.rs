//! `chiasm demo`: the main job in one command, in separate processes, every byte compared.

mod data;
mod process;
mod report;

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context as _, ensure};
use chiasm_node::planes;
use clap::Args;
use serde_json::{Map, Value, json};

use self::process::{Producer, fetch};
use self::report::{Line, Report};
use super::progress;
use super::stop::StopSignal;
use crate::exit::Failure;

/// Move encoder outputs between processes of this machine and show what became of each.
///
/// One process produces (chiasm produce), another one fetches (chiasm fetch); both are started here,
/// on the loopback interface, with regions in /dev/shm and stores in a temporary directory that is
/// removed at the end. The encodings are four that a real vLLM encoder computed, and generated ones of
/// 1 to 42 MB. They go over shm, where it is available, and over tcp. Every byte that arrives is
/// compared with the file that it came from.
///
/// Then come the cases in which nothing may be read: a producer that is not approved is refused
/// without a connection, which a listening socket of the demo confirms; an encoding that the producer
/// does not have is unavailable; a producer that is down costs an item with local input a fraction of
/// a second before it falls back to local encoding.
#[derive(Args, Debug)]
pub(crate) struct DemoCommand {}

/// Runs the command.
pub(crate) fn run(_: &DemoCommand, json: bool) -> Result<(), Failure> {
    let stop = StopSignal::install()?;
    let report = demonstrate(&stop).map_err(Failure::Work)?;
    let text = if json { report.to_json() } else { report.to_table() };
    writeln!(std::io::stdout(), "{text}").map_err(Failure::work)?;
    if report.as_expected() { Ok(()) } else { Err(Failure::Reported) }
}

/// Looks for a signal between its steps, so that processes and files are gone when it ends.
fn demonstrate(stop: &StopSignal) -> anyhow::Result<Report> {
    let go_on = || {
        ensure!(!stop.came(), "stopped by a signal");
        Ok(())
    };
    let directory = tempfile::Builder::new().prefix("chiasm-demo-").tempdir()?;
    let directory = directory.path();
    let store = directory.join("store");
    let bar = progress::bar(data::total_bytes(), "generating");
    let encodings = data::write(&store, &bar)?;
    bar.finish_and_clear();
    go_on()?;

    let producer = Producer::start(&store, &directory.join("params.json"))?;
    let mut report = Report::new(&producer.endpoint);
    let spinner = progress::spinner("moving encodings to the other process");
    report.lines.extend(approved(directory, &producer, &encodings)?);
    go_on()?;
    spinner.set_message("asking for what must not, or cannot, be read");
    report.lines.push(unapproved(directory, &producer, &encodings[0])?);
    go_on()?;
    report.lines.push(missing(directory, &producer, &encodings[0])?);
    go_on()?;
    let endpoint = producer.stop()?;
    report.lines.push(down(directory, &endpoint, &encodings[0])?);
    spinner.finish_and_clear();
    Ok(report)
}

/// The main job: everything arrives and is the same. The first plane carries all encodings, the others
/// the generated ones.
fn approved(
    directory: &Path,
    producer: &Producer,
    encodings: &[data::Encoding],
) -> anyhow::Result<Vec<Line>> {
    let here = planes::report(Path::new("/dev/shm")).into_iter().filter(|plane| plane.available);
    let mut lines = Vec::new();
    for (at, plane) in here.map(|report| report.plane).enumerate() {
        let these = encodings.iter().filter(|encoding| at == 0 || encoding.is_generated());
        let these: Vec<&data::Encoding> = these.collect();
        let mut params = Map::new();
        for encoding in &these {
            params.insert(encoding.hash.clone(), producer.announcement(&encoding.hash)?);
        }
        let params = write_params(directory, plane.name(), params)?;
        let out = directory.join(format!("fetched-{plane}"));
        let arguments = ["--planes", plane.name()];
        let fetched = fetch(&params, &producer.endpoint, &out, &arguments)?;
        for encoding in these {
            let mut line = fetched.line(&encoding.hash, encoding.label)?;
            line.expected = "fetched";
            line.identical = Some(data::same(&encoding.path, &out.join(&encoding.hash))?);
            ensure!(line.plane.as_deref() == Some(plane.name()), "plane {:?}", line.plane);
            lines.push(line);
        }
    }
    Ok(lines)
}

/// A client names a producer that nobody has approved. A socket that listens there sees no connection.
fn unapproved(
    directory: &Path,
    producer: &Producer,
    encoding: &data::Encoding,
) -> anyhow::Result<Line> {
    let foreign = TcpListener::bind("127.0.0.1:0")?;
    foreign.set_nonblocking(true)?;
    let mut announcement = producer.announcement(&encoding.hash)?;
    announcement["peer_port"] = json!(foreign.local_addr()?.port());
    let params = write_params(directory, "unapproved", only(&encoding.hash, announcement))?;
    let fetched = fetch(&params, &producer.endpoint, &directory.join("unapproved"), &[])?;
    let mut line = fetched.line(&encoding.hash, "a producer that is not approved")?;
    ensure!(line.reason.as_deref() == Some("not_allowed"), "reason {:?}", line.reason);
    let contacted = match foreign.accept() {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
        Err(error) => return Err(error).context("the foreign socket"),
        Ok(_) => true,
    };
    line.verdict = String::from(if contacted { "contacted" } else { "refused" });
    line.expected = "refused";
    Ok(line)
}

/// An approved producer that does not have the encoding.
fn missing(
    directory: &Path,
    producer: &Producer,
    encoding: &data::Encoding,
) -> anyhow::Result<Line> {
    let announcement = producer.announcement(&encoding.hash)?;
    let hash = "evicted-at-the-producer";
    let params = write_params(directory, "missing", only(hash, announcement))?;
    let fetched = fetch(&params, &producer.endpoint, &directory.join("missing"), &[])?;
    let mut line = fetched.line(hash, "evicted at the producer, no local input")?;
    line.expected = "unavailable";
    Ok(line)
}

/// An approved producer that is down, and an item that the engine can encode itself.
fn down(directory: &Path, endpoint: &str, encoding: &data::Encoding) -> anyhow::Result<Line> {
    let params = directory.join("params.json");
    let out = directory.join("down");
    let announcement = process::announcement(&params, &encoding.hash)?;
    let params = write_params(directory, "down", only(&encoding.hash, announcement))?;
    let fetched = fetch(&params, endpoint, &out, &["--local", &encoding.hash])?;
    let mut line = fetched.line(&encoding.hash, "producer down, local input")?;
    line.expected = "fallback";
    Ok(line)
}

fn only(hash: &str, announcement: Value) -> Map<String, Value> {
    Map::from_iter([(hash.to_owned(), announcement)])
}

fn write_params(
    directory: &Path,
    name: &str,
    params: Map<String, Value>,
) -> anyhow::Result<std::path::PathBuf> {
    let path = directory.join(format!("{name}.json"));
    std::fs::write(&path, Value::Object(params).to_string())?;
    Ok(path)
}
