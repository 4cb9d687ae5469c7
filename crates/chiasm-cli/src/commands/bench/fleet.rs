//! Four producers and four consumers, each a process of its own, with entries of realistic sizes.
//!
//! The command starts them and speaks with them over their standard streams, a line each: producers say
//! what they announce, consumers take all of it, wait for the word, and say what one round came to.
//! Sizes run from 1 to 42 MB; of two entries one is asked for more often than the other, as images are.
//! Every byte that arrives is compared. What is asked for is the [`Plan`]'s to say.

mod plan;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use chiasm_core::announcement::{
    Announcement, OutgoingAnnouncement, ParamsLimits, parse_params_text,
};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::Node;
use chiasm_region::reclaim_stale;
use clap::Args;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::plan::{CONSUMERS, OUTSTANDING, PRODUCERS, Plan};
use super::entries::{End, Pattern, Requests, Wanted, consumer_config, producer_config};
use super::stats::{median, number, percentile_ms};
use super::transfers::nixl_config;
use super::{Effort, Rows};
use crate::commands::nixl::NixlArguments;
use crate::commands::planes;

const PLANES: [Plane; 3] = [Plane::Shm, Plane::Tcp, Plane::Nixl];

/// How much of it all: what every process of the fleet is told.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Share {
    /// A tenth of it.
    #[arg(long)]
    quick: bool,
    /// Next to nothing of it.
    #[arg(long)]
    smoke: bool,
}

impl Share {
    fn effort(self) -> Effort {
        match (self.quick, self.smoke) {
            (true, _) => Effort::Quick,
            (false, true) => Effort::Smoke,
            (false, false) => Effort::Full,
        }
    }
}

/// A producer of the fleet.
#[derive(Args, Debug)]
pub(super) struct ProducerRole {
    /// Its number.
    number: usize,
    /// It serves over nixl, too.
    #[arg(long)]
    with_nixl: bool,
    #[command(flatten)]
    share: Share,
    #[command(flatten)]
    nixl: NixlArguments,
}

/// A consumer of the fleet.
#[derive(Args, Debug)]
pub(super) struct ConsumerRole {
    /// Its number.
    number: usize,
    /// The plane that it reads over.
    plane: String,
    #[command(flatten)]
    share: Share,
    #[command(flatten)]
    nixl: NixlArguments,
}

/// What the fleet moves, as JSON.
#[derive(Args, Debug)]
pub(super) struct PlanRole {
    #[command(flatten)]
    share: Share,
}

/// What a consumer has to say about one round.
#[derive(Debug, Deserialize, Serialize)]
struct Told {
    ready: usize,
    fallbacks: usize,
    unavailable: usize,
    bytes: u64,
    latencies_us: Vec<u64>,
}

pub(super) fn measure(
    effort: Effort,
    kill: bool,
    nixl: &NixlArguments,
    rows: &mut Rows<'_>,
) -> anyhow::Result<()> {
    let has_nixl = nixl_config(nixl)?.is_some();
    let plan = Plan::new(effort);
    for plane in PLANES.into_iter().filter(|plane| *plane != Plane::Nixl || has_nixl) {
        measure_plane(&plan, effort, kill, plane, nixl, rows)?;
    }
    // What the killed ones have left.
    reclaim_stale(Path::new("/dev/shm"))?;
    Ok(())
}

fn measure_plane(
    plan: &Plan,
    effort: Effort,
    kill: bool,
    plane: Plane,
    nixl: &NixlArguments,
    rows: &mut Rows<'_>,
) -> anyhow::Result<()> {
    let flags = nixl.flags_of_all();
    let mut producers = Vec::new();
    let mut params = Map::new();
    for number in 0..PRODUCERS {
        let number = number.to_string();
        let mut role = vec!["fleet-producer", &number];
        role.extend((plane == Plane::Nixl).then_some("--with-nixl"));
        role.extend(flags.iter().map(String::as_str));
        let mut process = Process::start(&role, effort)?;
        let line = process.line()?;
        params.extend(serde_json::from_str::<Map<String, Value>>(&line)?);
        producers.push(process);
    }
    let params = Value::Object(params).to_string();
    let mut consumers = Vec::new();
    for number in 0..CONSUMERS {
        let number = number.to_string();
        let mut role = vec!["fleet-consumer", &number, plane.name()];
        role.extend(flags.iter().map(String::as_str));
        let mut process = Process::start(&role, effort)?;
        process.tell(&params)?;
        consumers.push(process);
    }
    let mut round = |at: usize, kill: Option<&mut Process>| -> anyhow::Result<Round> {
        let start = Instant::now();
        for consumer in &mut consumers {
            consumer.tell(&at.to_string())?;
        }
        // The word that half of it has gone.
        consumers[0].line()?;
        if let Some(victim) = kill {
            victim.child.kill()?;
        }
        let told = consumers.iter_mut().map(Process::told);
        let told = told.collect::<anyhow::Result<Vec<Told>>>()?;
        Ok(Round { took: start.elapsed(), told })
    };
    let rounds = plan.rounds.len() - 1;
    round(0, None)?;
    let mut done = Vec::new();
    for at in 1..=rounds {
        let victim = producers.first_mut().filter(|_| kill && at == rounds.div_ceil(2));
        done.push(round(at, victim)?);
    }
    let case = json!({
        "producers": PRODUCERS,
        "consumers": CONSUMERS,
        "outstanding": CONSUMERS * OUTSTANDING,
        "plane": plane.name(),
        "killed": usize::from(kill),
    });
    let asked = plan.rounds[1..].iter().flatten().map(Vec::len).sum();
    report(&done, asked, &case, rows)
}

struct Round {
    took: Duration,
    told: Vec<Told>,
}

fn report(rounds: &[Round], asked: usize, case: &Value, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    let all = || rounds.iter().flat_map(|round| &round.told);
    let sum = |field: fn(&Told) -> usize| number(all().map(field).sum());
    let rate = |round: &Round| {
        let ready: usize = round.told.iter().map(|told| told.ready).sum();
        number(ready) / round.took.as_secs_f64()
    };
    let speed = |round: &Round| {
        let bytes: u64 = round.told.iter().map(|told| told.bytes).sum();
        number(usize::try_from(bytes).unwrap_or(usize::MAX)) / round.took.as_secs_f64() / 1e9
    };
    let rates: Vec<f64> = rounds.iter().map(rate).collect();
    let speeds: Vec<f64> = rounds.iter().map(speed).collect();
    let ended = sum(|told| told.ready + told.fallbacks + told.unavailable);
    let micros = all().flat_map(|told| &told.latencies_us);
    let latencies: Vec<Duration> = micros.map(|micros| Duration::from_micros(*micros)).collect();
    for (metric, value) in [
        ("asked", number(asked)),
        ("ready", sum(|told| told.ready)),
        ("fallbacks", sum(|told| told.fallbacks)),
        ("unavailable", sum(|told| told.unavailable)),
        ("lost", number(asked) - ended),
        ("consumers_left", number(rounds.last().map_or(0, |round| round.told.len()))),
        ("transfers_per_s", median(&rates)),
        ("gb_per_s", median(&speeds)),
        ("latency_p50_ms", percentile_ms(&latencies, 50)),
        ("latency_p99_ms", percentile_ms(&latencies, 99)),
    ] {
        rows.add("chiasm", case, metric, value)?;
    }
    Ok(())
}

/// A process of the fleet. It ends, and its region goes, when its standard input does.
pub(super) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// One that plays a role: the hidden command and its arguments.
    pub(super) fn start(role: &[&str], effort: Effort) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("bench")
            .args(role)
            .args(effort.flag())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("no standard output")?;
        Ok(Self { child, stdin, stdout: BufReader::new(stdout) })
    }

    /// The next line that it says.
    pub(super) fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        ensure!(!line.is_empty(), "a process of the fleet has ended");
        Ok(line)
    }

    /// Kills or stops it, and waits until that has come about.
    pub(super) fn end(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)?;
        let either = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), either)?;
        Ok(())
    }

    /// Lets one go on that is stopped; nothing happens to one that is dead.
    pub(super) fn go_on(&self) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("no standard input")?;
        writeln!(stdin, "{line}")?;
        Ok(stdin.flush()?)
    }

    fn told(&mut self) -> anyhow::Result<Told> {
        loop {
            let line = self.line()?;
            if line.trim() != HALF {
                return Ok(serde_json::from_str(&line)?);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its end is the word to go.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// What a consumer says when half of a round is done.
const HALF: &str = "half";

pub(super) fn say_plan(role: &PlanRole) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(&Plan::new(role.share.effort()))?);
    Ok(())
}

pub(super) fn produce(role: &ProducerRole) -> anyhow::Result<()> {
    let plan = Plan::new(role.share.effort());
    let mut config = producer_config(plan.producer_region_bytes)?;
    if role.with_nixl {
        config.planes = Plane::ALL.into_iter().collect();
        config.nixl = role.nixl.config(config.planes)?;
    }
    let node = Node::start(&config)?;
    let pattern = Pattern::new();
    let mut params = Map::new();
    let own = plan.entries.iter().filter(|entry| entry.producer == role.number);
    for (index, entry) in (0..).zip(own) {
        pattern.save(&node, &entry.name, entry.rows)?;
        let offer = node.announce(&entry.name).context("evicted")?;
        let announcement = OutgoingAnnouncement::new("image", index);
        params.insert(entry.name.clone(), announcement.with_entry(offer, Map::new()).to_json());
    }
    println!("{}", Value::Object(params));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

pub(super) fn consume(role: &ConsumerRole) -> anyhow::Result<()> {
    let plan = Plan::new(role.share.effort());
    let mut lines = std::io::stdin().lock().lines();
    let text = lines.next().context("no params")??;
    let wanted = wanted(&text)?;
    let mut allowed: Vec<Endpoint> = wanted.iter().map(|it| it.offer.source.clone()).collect();
    allowed.sort_unstable();
    allowed.dedup();
    let planes: PlaneList = planes::parse(&role.plane)?;
    let mut config = consumer_config(plan.consumer_region_bytes, &allowed, planes)?;
    config.nixl = role.nixl.config(planes)?;
    let node = Node::start(&config)?;
    let pattern = Pattern::new();
    let mut by_name: BTreeMap<String, Wanted> =
        wanted.into_iter().map(|it| (it.name.clone(), it)).collect();
    let entries = plan.entries.iter().map(|entry| by_name.remove(&entry.name));
    let entries: Vec<Wanted> = entries.collect::<Option<_>>().context("it is not announced")?;
    for line in lines {
        let round = plan.rounds.get(line?.parse::<usize>()?).context("no such round")?;
        let list = round.get(role.number).context("no such consumer")?;
        let told = one_round(&node, &pattern, &entries, list)?;
        println!("{}", serde_json::to_string(&told)?);
    }
    Ok(())
}

/// What a producer of the fleet has said that it has.
pub(super) fn wanted(text: &str) -> anyhow::Result<Vec<Wanted>> {
    let params = parse_params_text(text, &ParamsLimits::default())?;
    let offer = |(hash, announcement)| match announcement {
        Ok(Announcement::Remote(offer)) => {
            let name = chiasm_core::mm_hash::MmHash::as_str(&hash).to_owned();
            Ok(Wanted { name, offer, local_input: true })
        }
        other => bail!("no announcement of an entry: {other:?}"),
    };
    params.items.into_iter().map(offer).collect()
}

fn one_round(
    node: &Node,
    pattern: &Pattern,
    entries: &[Wanted],
    list: &[usize],
) -> anyhow::Result<Told> {
    let mut told =
        Told { ready: 0, fallbacks: 0, unavailable: 0, bytes: 0, latencies_us: Vec::new() };
    let mut requests = Requests::new(node);
    let mut left = list.to_vec();
    let (mut ended, mut half) = (0, false);
    while ended < list.len() {
        // Each request is a transfer of its own: what is under way is asked for when that has ended.
        while requests.running() < OUTSTANDING
            && let Some(at) = left.iter().position(|next| !requests.has(&entries[*next].name))
        {
            requests.start(entries[left.remove(at)].clone())?;
        }
        requests.wait(|node, wanted, end, took| {
            ended += 1;
            match end {
                End::Ready => {
                    told.ready += 1;
                    told.latencies_us.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                    told.bytes += pattern.check(node, &wanted.name)?;
                }
                End::Fallback => told.fallbacks += 1,
                End::Unavailable => told.unavailable += 1,
            }
            Ok(())
        })?;
        if !half && ended * 2 >= list.len() {
            half = true;
            println!("{HALF}");
        }
    }
    Ok(told)
}
