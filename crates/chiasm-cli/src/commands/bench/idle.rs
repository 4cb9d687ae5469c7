//! What nodes do while nothing is asked of them: a producer with two consumers connected to it.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::Node;
use serde_json::json;

use super::entries::{End, Pattern, Requests, Wanted, consumer_config, producer};
use super::stats::number;
use super::{Effort, Rows};

const REGION_BYTES: u64 = 16 << 20;
const MEASURED: Duration = Duration::from_secs(20);
/// Until what the last transfer has brought about is over.
const SETTLING: Duration = Duration::from_secs(3);
const NODES: f64 = 3.0;
const TICKS_PER_S: f64 = 100.0;

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    let producer = producer(REGION_BYTES)?;
    let endpoint = producer.endpoint().context("no endpoint")?.clone();
    Pattern::new().save(&producer, "small", 1)?;
    let offer = producer.announce("small").context("evicted")?;
    let mut readers = Vec::new();
    for _ in 0..2 {
        let planes = PlaneList::from_iter([Plane::Tcp]);
        let reader =
            Node::start(&consumer_config(REGION_BYTES, std::slice::from_ref(&endpoint), planes)?)?;
        let mut requests = Requests::new(&reader);
        let wanted = Wanted { name: "small".into(), offer: offer.clone(), local_input: false };
        requests.start(wanted)?;
        requests.wait(|_, _, end, _| {
            ensure!(end == End::Ready, "{end:?}");
            Ok(())
        })?;
        readers.push(reader);
    }
    thread::sleep(effort.choose(SETTLING, SETTLING, Duration::ZERO));
    let (ticks_before, sleeps_before) = look()?;
    let start = Instant::now();
    thread::sleep(effort.choose(MEASURED, MEASURED / 4, Duration::from_millis(100)));
    let (ticks, sleeps) = look()?;
    let seconds = start.elapsed().as_secs_f64();
    let case = json!({ "peers_connected": 2 });
    let busy = number(ticks - ticks_before) / TICKS_PER_S / seconds / NODES;
    rows.add("chiasm", &case, "cpu_percent_per_node", 100.0 * busy)?;
    let woken = number(sleeps - sleeps_before) / seconds / NODES;
    rows.add("chiasm", &case, "wake_ups_per_s_per_node", woken)
}

/// Clock ticks that the nodes' threads have used, and times that they have gone to sleep: each is
/// followed by a wake-up.
fn look() -> anyhow::Result<(usize, usize)> {
    let (mut ticks, mut sleeps) = (0, 0);
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() != "chiasm-node" {
            continue;
        }
        let stat = fs::read_to_string(task.join("stat"))?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        for field in fields.skip(11).take(2) {
            ticks += field.parse::<usize>()?;
        }
        let status = fs::read_to_string(task.join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += line.context("no count of sleeps")?.trim().parse::<usize>()?;
    }
    Ok((ticks, sleeps))
}
