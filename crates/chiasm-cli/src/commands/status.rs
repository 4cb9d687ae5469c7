//! `chiasm status`: what live nodes say about themselves.

mod text;

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use chiasm_node::status::{AskError, ask, sockets};
use clap::Args;
use serde_json::{Value, json};

use super::stop::StopSignal;
use crate::exit::{Failure, say};

/// Where nodes have their regions, and their status sockets beside them.
const DIRECTORY: &str = "/dev/shm";

/// How long a node may take. It answers between slices of its work of well under a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shortest time between two looks.
const MIN_WATCH: Duration = Duration::from_millis(100);

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

const EXAMPLES: &str = "\
Examples:
  All nodes; one by its endpoint; one by the beginning of its name:
    chiasm status
    chiasm status 127.0.0.1:40123
    chiasm status chiasm-01 --json | jq .blocks";

/// Show the live nodes of this user, or everything about one of them.
///
/// NODE is the name of a node's region (chiasm-0123456789abcdef), the beginning of it, the path of its
/// region, or the HOST:PORT that it serves. Asking changes nothing and holds nothing up. What each
/// field means is in docs/operations.md.
///
/// Exit codes: 0 all nodes that were asked have answered, 1 one did not, 2 there is no such node.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusCommand {
    /// Which node. Default: a table of all.
    #[arg(value_name = "NODE")]
    node: Option<String>,

    /// Look again every so many seconds (at least 0.1) until a signal comes. With --json each look is
    /// one line.
    #[arg(long, value_name = "SECONDS", value_parser = super::number::seconds)]
    watch: Option<Duration>,
}

/// Runs the command.
pub(crate) fn run(command: &StatusCommand, json: bool) -> Result<(), Failure> {
    let Some(pause) = command.watch else {
        let (text, is_whole) = look(command, json, false)?;
        writeln!(std::io::stdout(), "{text}").map_err(Failure::work)?;
        return if is_whole { Ok(()) } else { Err(Failure::Reported) };
    };
    if pause < MIN_WATCH {
        return Err(Failure::input(anyhow!("--watch: at least {} s", MIN_WATCH.as_secs_f64())));
    }
    let stop = StopSignal::install()?;
    let mut out = std::io::stdout();
    let clear = if out.is_terminal() && !json { CLEAR } else { "" };
    while !stop.came() {
        let (text, _) = look(command, json, true)?;
        writeln!(out, "{clear}{text}").map_err(Failure::work)?;
        out.flush().map_err(Failure::work)?;
        stop.wait(Some(pause));
    }
    Ok(())
}

/// What is to be shown, and whether everybody has answered.
fn look(command: &StatusCommand, json: bool, compact: bool) -> Result<(String, bool), Failure> {
    let (shown, table, silent) = if let Some(name) = &command.node {
        let report = one(name)?;
        let table = text::report(&report);
        (report, table, Vec::new())
    } else {
        let Everybody { reports, silent } = everybody().map_err(Failure::Work)?;
        let table = text::overview(&reports);
        let messages: Vec<String> = silent.iter().map(ToString::to_string).collect();
        (json!({ "nodes": reports, "silent": messages }), table, messages)
    };
    for message in &silent {
        say(format_args!("{message}"));
    }
    let text = match (json, compact) {
        (false, _) => table,
        (true, false) => serde_json::to_string_pretty(&shown).map_err(Failure::work)?,
        (true, true) => shown.to_string(),
    };
    Ok((text, silent.is_empty()))
}

/// All live nodes of this user.
struct Everybody {
    reports: Vec<Value>,
    silent: Vec<AskError>,
}

fn everybody() -> anyhow::Result<Everybody> {
    let directory = Path::new(DIRECTORY);
    let paths = sockets(directory).with_context(|| format!("cannot list {DIRECTORY}"))?;
    let mut found = Everybody { reports: Vec::new(), silent: Vec::new() };
    for path in paths {
        match ask(&path, PATIENCE) {
            Ok(answer) => found.reports.push(parse(&path, &answer)?),
            // What a killed node has left, or one that has ended since the listing.
            Err(AskError::Dead { .. } | AskError::Absent { .. } | AskError::Foreign { .. }) => {}
            Err(silent @ AskError::Silent { .. }) => found.silent.push(silent),
        }
    }
    Ok(found)
}

/// The node that `name` means.
fn one(name: &str) -> Result<Value, Failure> {
    let path = find(name)?;
    match ask(&path, PATIENCE) {
        Ok(answer) => parse(&path, &answer).map_err(Failure::Work),
        Err(silent @ AskError::Silent { .. }) => Err(Failure::work(silent)),
        Err(gone) => Err(no_such(name, &gone.to_string())),
    }
}

fn parse(path: &Path, answer: &str) -> anyhow::Result<Value> {
    let name = path.display();
    let report: Value = serde_json::from_str(answer).with_context(|| format!("{name}"))?;
    match report.get("error") {
        Some(error) => Err(anyhow!("{name}: the node says {error}")),
        None => Ok(report),
    }
}

fn find(name: &str) -> Result<PathBuf, Failure> {
    let socket = |region: &Path| chiasm_region::status_socket(region);
    if name.contains('/') {
        let path = Path::new(name);
        let is_socket = chiasm_region::region_of_status_socket(path).is_some();
        return Ok(if is_socket { path.to_owned() } else { socket(path) });
    }
    let all = sockets(Path::new(DIRECTORY)).map_err(Failure::work)?;
    let exact = socket(&Path::new(DIRECTORY).join(name));
    if !name.is_empty() && all.contains(&exact) {
        return Ok(exact);
    }
    if name.contains(':') {
        return serving(name, &all);
    }
    let means = |path: &&PathBuf| {
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        !name.is_empty() && (file.starts_with(name) || file.starts_with(&format!("chiasm-{name}")))
    };
    // Those that were killed are not meant, but where one alone fits, it is the one to speak of.
    let fitting: Vec<&PathBuf> = all.iter().filter(means).collect();
    match fitting.as_slice() {
        [path] => Ok((*path).clone()),
        [] => Err(no_such(name, "there is none of that name")),
        _ => Err(no_such(name, "it is the beginning of more than one name")),
    }
}

/// The node that serves at this endpoint.
fn serving(endpoint: &str, all: &[PathBuf]) -> Result<PathBuf, Failure> {
    let mut silent = Vec::new();
    for path in all {
        match ask(path, PATIENCE) {
            Ok(answer) => {
                let report = parse(path, &answer);
                if report.is_ok_and(|report| report["node"]["endpoint"] == endpoint) {
                    return Ok(path.clone());
                }
            }
            Err(error @ AskError::Silent { .. }) => silent.push(error.to_string()),
            Err(AskError::Dead { .. } | AskError::Absent { .. } | AskError::Foreign { .. }) => {}
        }
    }
    if silent.is_empty() {
        return Err(no_such(endpoint, "nobody serves there"));
    }
    // It may be one of these: whether there is such a node is not known.
    let silent = silent.join("; ");
    Err(Failure::work(anyhow!("no node that answers serves at {endpoint}: {silent}")))
}

/// An error that says what there is.
fn no_such(name: &str, why: &str) -> Failure {
    let there = match everybody() {
        Ok(there) if there.reports.is_empty() => "no node of this user is running".to_owned(),
        Ok(there) => {
            let names = there.reports.iter().map(text::name_and_endpoint);
            format!("there are: {}", names.collect::<Vec<_>>().join(", "))
        }
        Err(error) => format!("{error:#}"),
    };
    Failure::input(anyhow!("no node {name:?}: {why}; {there}"))
}
