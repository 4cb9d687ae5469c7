//! Four producers and four consumers, each a process of its own, with entries of realistic sizes.
//!
//! The command starts them and speaks with them over their standard streams, a line each: producers say
//! what they announce, consumers take all of it, wait for the word, and say what one round came to.
//! Sizes run from 1 to 42 MB; of two entries one is asked for more often than the other, as images are.
//! Every byte that arrives is compared.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use chiasm_core::announcement::{
    Announcement, OutgoingAnnouncement, ParamsLimits, parse_params_text,
};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::plane::PlaneList;
use chiasm_node::Node;
use chiasm_region::reclaim_stale;
use clap::Args;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::entries::{
    End, Pattern, ROW_BYTES, Requests, Wanted, consumer_config, producer, rows_of,
};
use super::stats::{median, number, percentile_ms};
use super::{Effort, Rows};
use crate::commands::planes;

const PRODUCERS: usize = 4;
const CONSUMERS: usize = 4;
/// Requests under way at each consumer: 96 in all.
const OUTSTANDING: usize = 24;
/// Of all consumers together.
const WARM_UP: usize = 200;
const TRANSFERS: usize = 1200;
const ROUNDS: usize = 5;
/// Sizes of one producer's entries in MB.
const SIZES_MB: [u64; 12] = [1, 1, 2, 2, 4, 4, 6, 8, 12, 16, 26, 42];
const CONSUMER_REGION_BYTES: u64 = 1 << 30;
const PLANES: [&str; 2] = ["shm", "tcp"];

/// A producer of the fleet.
#[derive(Args, Debug)]
pub(super) struct ProducerRole {
    /// Its number.
    number: usize,
    /// Entries are a tenth as large.
    #[arg(long)]
    quick: bool,
    /// Entries are a hundredth as large.
    #[arg(long)]
    smoke: bool,
}

/// A consumer of the fleet.
#[derive(Args, Debug)]
pub(super) struct ConsumerRole {
    /// Its number.
    number: usize,
    /// The plane that it reads over.
    plane: String,
    /// Its region is a tenth as large.
    #[arg(long)]
    quick: bool,
    /// Its region is a tenth as large.
    #[arg(long)]
    smoke: bool,
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

pub(super) fn measure(effort: Effort, kill: bool, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    for plane in PLANES {
        measure_plane(effort, kill, plane, rows)?;
    }
    // What the killed ones have left.
    reclaim_stale(Path::new("/dev/shm"))?;
    Ok(())
}

fn measure_plane(
    effort: Effort,
    kill: bool,
    plane: &str,
    rows: &mut Rows<'_>,
) -> anyhow::Result<()> {
    let mut producers = Vec::new();
    let mut params = Map::new();
    for number in 0..PRODUCERS {
        let number = number.to_string();
        let mut process = Process::start(&["fleet-producer", &number], effort)?;
        let line = process.line()?;
        params.extend(serde_json::from_str::<Map<String, Value>>(&line)?);
        producers.push(process);
    }
    let params = Value::Object(params).to_string();
    let mut consumers = Vec::new();
    for number in 0..CONSUMERS {
        let number = number.to_string();
        let mut process = Process::start(&["fleet-consumer", &number, plane], effort)?;
        process.tell(&params)?;
        consumers.push(process);
    }
    // A few of each entry, however little is asked for.
    let per_consumer = |all: usize| effort.of(all).max(40) / CONSUMERS;
    let mut round = |count: usize, kill: Option<&mut Process>| -> anyhow::Result<Round> {
        let start = Instant::now();
        for consumer in &mut consumers {
            consumer.tell(&count.to_string())?;
        }
        if let Some(victim) = kill {
            // The word that half of it has gone.
            consumers[0].line()?;
            victim.child.kill()?;
        } else {
            consumers[0].line()?;
        }
        let told = consumers.iter_mut().map(Process::told);
        let told = told.collect::<anyhow::Result<Vec<Told>>>()?;
        Ok(Round { took: start.elapsed(), told })
    };
    round(per_consumer(WARM_UP), None)?;
    let mut done = Vec::new();
    let rounds = effort.choose(ROUNDS, 2, 2);
    for at in 0..rounds {
        let victim = producers.first_mut().filter(|_| kill && at == (rounds - 1) / 2);
        done.push(round(per_consumer(TRANSFERS), victim)?);
    }
    let case = json!({
        "producers": PRODUCERS,
        "consumers": CONSUMERS,
        "outstanding": CONSUMERS * OUTSTANDING,
        "plane": plane,
        "killed": usize::from(kill),
    });
    report(&done, per_consumer(TRANSFERS) * CONSUMERS * rounds, &case, rows)
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
    let micros = all().flat_map(|told| &told.latencies_us);
    let latencies: Vec<Duration> = micros.map(|micros| Duration::from_micros(*micros)).collect();
    for (metric, value) in [
        ("asked", number(asked)),
        ("ready", sum(|told| told.ready)),
        ("fallbacks", sum(|told| told.fallbacks)),
        ("unavailable", sum(|told| told.unavailable)),
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

pub(super) fn produce(role: &ProducerRole) -> anyhow::Result<()> {
    let mb = match (role.quick, role.smoke) {
        (false, false) => 1_000_000,
        (true, _) => 100_000,
        (false, true) => 10_000,
    };
    let sizes = SIZES_MB.map(|size| rows_of(size * mb));
    let needed: u64 = sizes.iter().map(|rows| u64::from(*rows) * ROW_BYTES).sum();
    let node = producer(needed * 2)?;
    let pattern = Pattern::new();
    let mut params = Map::new();
    for (index, rows) in (0..).zip(sizes) {
        let name = format!("fleet-{}-{index}", role.number);
        pattern.save(&node, &name, rows)?;
        let offer = node.announce(&name).context("evicted")?;
        let announcement = OutgoingAnnouncement::new("image", index);
        params.insert(name, announcement.with_entry(offer, Map::new()).to_json());
    }
    println!("{}", Value::Object(params));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

pub(super) fn consume(role: &ConsumerRole) -> anyhow::Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let text = lines.next().context("no params")??;
    let wanted = wanted(&text)?;
    let mut allowed: Vec<Endpoint> = wanted.iter().map(|it| it.offer.source.clone()).collect();
    allowed.sort_unstable();
    allowed.dedup();
    let planes: PlaneList = planes::parse(&role.plane)?;
    let region = CONSUMER_REGION_BYTES / if role.quick || role.smoke { 10 } else { 1 };
    let node = Node::start(&consumer_config(region, &allowed, planes)?)?;
    let pattern = Pattern::new();
    let mut draw = Draw(0x2545_f491_4f6c_dd1d_u64.wrapping_mul(role.number as u64 + 1));
    for line in lines {
        let told = one_round(&node, &pattern, &wanted, line?.parse()?, &mut draw)?;
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
    wanted: &[Wanted],
    count: usize,
    draw: &mut Draw,
) -> anyhow::Result<Told> {
    let mut told =
        Told { ready: 0, fallbacks: 0, unavailable: 0, bytes: 0, latencies_us: Vec::new() };
    let mut requests = Requests::new(node);
    let (mut started, mut ended, mut half) = (0, 0, false);
    while ended < count {
        while started < count && requests.running() < OUTSTANDING {
            // Each request is a transfer of its own.
            let next = std::iter::repeat_with(|| &wanted[draw.skewed(wanted.len())])
                .find(|next| !requests.has(&next.name))
                .context("an endless draw")?;
            requests.start(next.clone())?;
            started += 1;
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
        if !half && ended * 2 >= count {
            half = true;
            println!("{HALF}");
        }
    }
    Ok(told)
}

/// Numbers that look random and are the same in every run.
struct Draw(u64);

impl Draw {
    /// Below `count`; the first ones come more often: half of all draws fall on the first quarter.
    fn skewed(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let (one, other) = ((self.0 >> 33) as usize % count, (self.0 >> 3) as usize % count);
        one.min(other)
    }
}
