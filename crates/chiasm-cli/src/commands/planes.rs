//! `chiasm planes`: which ways of moving bytes there are here, and why not the others.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_nixl::{Launch, Probed, Settings};
use chiasm_node::NodeConfig;
use chiasm_node::planes::PlaneReport;
use clap::Args;
use serde_json::json;

use super::table;
use crate::exit::Failure;

/// What `produce` and `fetch` use where nobody says anything else.
pub(super) const DEFAULT: &str = "shm,tcp";

/// Where regions are, if nobody says otherwise.
pub(super) const DIRECTORY: &str = "/dev/shm";

/// Show which planes (ways of moving bytes) are available here, and why or why not.
///
/// shm copies out of a producer's shared memory: same host, same user, same directory. nixl is RDMA
/// where there is RDMA, else what UCX finds, and the only plane of upstream peers. tcp goes over the
/// producer's control port and is always there. Both sides choose the first plane of the consumer's
/// list that reaches; one that is not there is passed over.
#[derive(Args, Debug)]
pub(crate) struct PlanesCommand {
    /// The directory in which the region would be.
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    region_dir: PathBuf,
}

/// Runs the command.
pub(crate) fn run(command: &PlanesCommand, json: bool) -> Result<(), Failure> {
    let settings = Settings { python_prefixes: active_python(), ..Settings::default() };
    let mut reports = chiasm_node::planes::report(&command.region_dir);
    tell_nixl(&mut reports, &settings);
    let text = if json { to_json(&reports) } else { to_table(&reports) };
    writeln!(std::io::stdout(), "{text}").map_err(Failure::work)
}

/// Prefix of the Python environment that is active in this shell, where NIXL may be installed.
pub(super) fn active_python() -> Vec<PathBuf> {
    std::env::var_os("VIRTUAL_ENV").map(PathBuf::from).into_iter().collect()
}

/// How long NIXL is waited for; it takes a fifth of a second.
const NIXL_LIMIT: Duration = Duration::from_secs(30);

/// Finds out, in a process of its own, whether NIXL can be used, and writes it into its plane's report.
pub(super) fn tell_nixl(reports: &mut [PlaneReport], settings: &Settings) {
    let Some(report) = reports.iter_mut().find(|report| report.plane == Plane::Nixl) else {
        return;
    };
    match probe(settings) {
        Ok(probed) => {
            report.available = true;
            report.why = format!("{} has moved bytes here and back in a test", probed.backend);
            report.details = vec![("backend", probed.backend), ("library", probed.library)];
            report.details.extend(probed.notes.into_iter().map(|note| ("note", note)));
        }
        Err(why) => {
            report.available = false;
            report.why = why;
            report.details = Vec::new();
        }
    }
}

fn probe(settings: &Settings) -> Result<Probed, String> {
    Launch::this_program()
        .map_err(|error| format!("this program cannot be started again: {error}"))
        .and_then(|launch| chiasm_nixl::probe(&launch, settings, NIXL_LIMIT))
}

/// Why NIXL cannot be used here, if it is among the planes and cannot. That is an error where there is
/// no other plane: nothing could be moved, and each peer would only be told that no plane is in common.
pub(super) fn missing_nixl(config: &NodeConfig) -> Result<Option<String>, Failure> {
    let Some(nixl) = &config.nixl else { return Ok(None) };
    // Its ports are for the node's own helpers, which wait for one that is taken.
    let settings = Settings { ports: None, ..nixl.settings.clone() };
    let Err(why) = probe(&settings) else { return Ok(None) };
    if config.planes.len() > 1 {
        return Ok(Some(why));
    }
    Err(Failure::input(anyhow!(
        "--planes nixl: NIXL cannot be used here: {why}\n       Install it into the active Python \
         environment, name it with --nixl-library, or give another plane too, as in --planes nixl,tcp."
    )))
}

fn to_json(reports: &[PlaneReport]) -> String {
    let planes = reports.iter().map(|report| {
        let details: BTreeMap<_, _> = report.details.iter().cloned().collect();
        json!({
            "plane": report.plane.name(),
            "available": report.available,
            "why": report.why,
            "details": details,
        })
    });
    format!("{:#}", json!({ "planes": planes.collect::<Vec<_>>() }))
}

fn to_table(reports: &[PlaneReport]) -> String {
    let mut table = table::table(&["plane", "available", "why"], &[]);
    for report in reports {
        let available = if report.available { "yes" } else { "no" };
        table.add_row([report.plane.name(), available, &report.why]);
    }
    let mut text = table.trim_fmt();
    for report in reports {
        for (name, value) in &report.details {
            let shown = value.parse().ok().filter(|_| name.ends_with("_bytes")).map(table::size);
            let value = shown.as_ref().unwrap_or(value);
            let _ = write!(text, "\n{} {}: {value}", report.plane, name.replace('_', " "));
        }
    }
    text
}

/// The planes of a list as `--planes` takes it.
pub(super) fn parse(list: &str) -> anyhow::Result<PlaneList> {
    let plane = |name: &str| {
        Plane::from_name(name)
            .with_context(|| format!("--planes: {name:?} is no plane, there are {}", Plane::NAMES))
    };
    list.split(',').map(str::trim).map(plane).collect()
}
