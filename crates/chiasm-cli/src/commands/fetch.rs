//! `chiasm fetch`: read announced encodings from approved producers into a store.

mod items;
mod outcome;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use chiasm_core::allowlist::{Allowlist, Verdict};
use chiasm_core::announcement::{
    Announcement, Expectation, Params, ParamsLimits, parse_params_text,
};
use chiasm_core::byte_size::ByteSize;
use chiasm_core::plane::Plane;
use chiasm_node::{Node, NodeConfig};
use clap::Args;

use self::items::Fetching;
use super::identity::IdentityArguments;
use super::metrics::MetricsArguments;
use super::nixl::NixlArguments;
use super::planes;
use super::stop::StopSignal;
use crate::exit::{Failure, say};
use crate::store::StoreWriter;

/// Largest region that is made without --region. Encodings are written out as they come, so it only
/// has to hold those that are under way.
const MAX_DEFAULT_REGION_BYTES: u64 = 4 << 30;

const EXAMPLES: &str = "\
Examples:
  What the producer at 10.0.0.5:5601 has announced:
    chiasm fetch --params params.json --allow 10.0.0.5:5601 --out copy";

/// Read every encoding that an ec_transfer_params object announces and write it into a store.
///
/// A producer is contacted only if its exact HOST:PORT was given with --allow; without --allow nothing
/// is read. The store has the layout of vLLM's ECExampleConnector, and its tensors are those of the
/// producer, bit by bit.
///
/// Each encoding ends as "fetched", "fallback" (it could not be read and was marked with --local: an
/// engine would encode it itself) or "unavailable" (an engine would fail the request that needs it).
/// The exit code is 0 only if all were fetched.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true, after_help = EXAMPLES)]
pub(crate) struct FetchCommand {
    /// The ec_transfer_params object, as a producer returned it; - is standard input.
    #[arg(long, value_name = "FILE")]
    params: PathBuf,

    /// A producer that may be read from, exactly as announced. May be repeated; HOST:FIRST-LAST
    /// stands for a range of ports.
    #[arg(long, value_name = "HOST:PORT")]
    allow: Vec<String>,

    /// Directory of the store; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Planes to read through, in order of preference, separated by commas: shm, nixl, tcp. chiasm
    /// planes says which of them there are here. An upstream producer (vLLM's ECCPUConnector) can be
    /// read over nixl only, and does not say its element type: give --dtype.
    #[arg(long, value_name = "LIST", default_value = planes::DEFAULT)]
    planes: String,

    /// How long one encoding may take in all, retries included, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = super::number::seconds)]
    budget: Duration,

    /// How long one attempt waits for the producer's answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = super::number::seconds)]
    ack_timeout: Duration,

    /// How long one attempt to connect may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = super::number::seconds)]
    connect_timeout: Duration,

    /// How long one read may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = super::number::seconds)]
    read_timeout: Duration,

    /// An mm_hash for which there is local input, so that it can fall back. May be repeated.
    #[arg(long, value_name = "HASH")]
    local: Vec<String>,

    /// Size of the shared memory region, for example 4GiB. Default: enough for what is announced, at
    /// most 4 GiB.
    #[arg(long, value_name = "SIZE")]
    region: Option<ByteSize>,

    /// Replace files that exist.
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    metrics: MetricsArguments,

    #[command(flatten)]
    identity: IdentityArguments,

    #[command(flatten)]
    nixl: NixlArguments,
}

/// Runs the command.
pub(crate) fn run(command: &FetchCommand, json: bool) -> Result<(), Failure> {
    let stop = StopSignal::install()?;
    let mut plan = Plan::of(command).map_err(Failure::Input)?;
    plan.pass_over_missing_nixl()?;
    let hashes = plan.params.items.iter().map(|(hash, _)| hash);
    let store = StoreWriter::create(&command.out, hashes, command.force).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::input(anyhow!("{}", problems.join("\n       ")))
    })?;
    let node = Node::start(&plan.config)?;
    // Dropped before the node.
    let _metrics = command.metrics.serve(&node)?;
    let mut fetching = Fetching::new(&node, &store, &plan);
    fetching.run(&stop)?;
    let report = fetching.into_report();
    let mut out = std::io::stdout().lock();
    let text = if json { report.to_json(&node.contacted())? } else { report.to_table() };
    writeln!(out, "{text}").map_err(Failure::work)?;
    if report.all_fetched() { Ok(()) } else { Err(Failure::Reported) }
}

/// What is to be done, from arguments that have been checked.
#[derive(Debug)]
struct Plan {
    config: NodeConfig,
    params: Params,
    expected: Expectation,
    local: Vec<String>,
    /// Why NIXL cannot be used, if it was asked for and cannot.
    missing_nixl: Option<String>,
}

impl Plan {
    /// Takes nixl off the list where NIXL cannot be used, so that no attempt is spent on it. The error
    /// is that nothing is left then.
    fn pass_over_missing_nixl(&mut self) -> Result<(), Failure> {
        self.missing_nixl = planes::missing_nixl(&self.config)?;
        if let Some(why) = &self.missing_nixl {
            say(format_args!("warning: nixl is passed over: {why}"));
            self.config.planes = self.config.planes.without(Plane::Nixl);
            self.config.nixl = None;
        }
        Ok(())
    }

    fn of(command: &FetchCommand) -> anyhow::Result<Self> {
        let identity = command.identity.identity()?;
        let allowed = Allowlist::parse(command.allow.iter().map(String::as_str));
        let allowed = allowed.map_err(|problems| {
            let told = problems.iter().map(|it| format!("--allow {}: {}", it.given, it.problem));
            anyhow!("{}", told.collect::<Vec<_>>().join("\n       "))
        })?;
        let planes = planes::parse(&command.planes)?;
        let dtype = command.identity.dtype()?;
        let limits = ParamsLimits::default();
        let text = read_text(&command.params, limits.max_text_bytes)?;
        let params = parse_params_text(&text, &limits)
            .with_context(|| format!("--params {}", command.params.display()))?;
        if let Some((key, problem)) = params.refused_keys.first() {
            bail!(
                "--params {}: {} keys are no mm_hash, the first is {key}: {problem}",
                command.params.display(),
                params.refused_keys.len()
            );
        }
        for (flag, time) in [
            ("--budget", command.budget),
            ("--ack-timeout", command.ack_timeout),
            ("--connect-timeout", command.connect_timeout),
            ("--read-timeout", command.read_timeout),
        ] {
            ensure!(!time.is_zero(), "{flag} 0: nothing can be read in no time");
        }
        let mut config = NodeConfig::new(0);
        let expected = Expectation {
            rows: None,
            width: None,
            dtype,
            block_size_bytes: identity.block_size_bytes,
            // Whether it fits is admission's to say, after the allowlist.
            region_blocks: u32::MAX,
        };
        config.region_bytes = match command.region {
            Some(ByteSize(bytes)) => bytes,
            None => default_region_bytes(&params, &allowed, &expected),
        };
        config.identity = identity;
        config.allowed = allowed;
        config.planes = planes;
        config.nixl = command.nixl.config(planes)?;
        config.wait_budget = command.budget;
        config.ack_timeout = command.ack_timeout;
        config.connect_timeout = command.connect_timeout;
        config.read_timeout = command.read_timeout;
        config.status = true;
        let local = command.local.clone();
        Ok(Self { config, params, expected, local, missing_nixl: None })
    }
}

/// Room for everything that will be read. Sizes come from outside, so they make no region larger than
/// [`MAX_DEFAULT_REGION_BYTES`], and those of announcements that are not valid or not approved count
/// for nothing.
fn default_region_bytes(params: &Params, allowed: &Allowlist, expected: &Expectation) -> u64 {
    let sizes = params.items.iter().filter_map(|(_, announcement)| match announcement {
        Ok(Announcement::Remote(remote))
            // One that cannot fit anyway takes no memory from those that can.
            if remote.size_bytes <= MAX_DEFAULT_REGION_BYTES
                && remote.check(expected).is_ok()
                && allowed.check(&remote.source) == Verdict::Allowed =>
        {
            Some(remote.size_bytes)
        }
        _ => None,
    });
    let sum = sizes.fold(0_u64, u64::saturating_add).min(MAX_DEFAULT_REGION_BYTES);
    sum.max(expected.block_size_bytes)
}

/// Reads no more than `limit` bytes and one: the one shows that there were more.
fn read_text(path: &Path, limit: usize) -> anyhow::Result<String> {
    let name = || format!("--params {}", path.display());
    let mut text = Vec::new();
    let most = limit as u64 + 1;
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut text)
    } else {
        let file = std::fs::File::open(path).with_context(name)?;
        file.take(most).read_to_end(&mut text)
    };
    read.with_context(name)?;
    if text.len() > limit {
        bail!("{}: more than the limit of {limit} bytes", name());
    }
    String::from_utf8(text).with_context(name)
}
