//! What both example engines share: worker processes, and how orders get to them.
//!
//! A real engine has all of this already. Here a worker is this same program, started once more; orders
//! go to it as lines on its standard input, and nothing comes back that way: it reports through the
//! region.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use chiasm_core::dispatch::{Order, OrderKind, Outcome, Rank};
use chiasm_region::{RegionOptions, Worker, digest_of};

/// Bytes of one block: one row of 1024 numbers of 16 bits.
pub(crate) const BLOCK_BYTES: u64 = 2048;

/// Blocks of an instance's region: 4 MiB.
pub(crate) const BLOCKS: u32 = 2048;

/// A worker process, as the engine holds it. Ends when it is dropped.
pub(crate) struct WorkerProcess {
    process: Child,
    orders: Option<ChildStdin>,
}

impl WorkerProcess {
    /// Starts the worker of this rank and waits until it is attached to the region. Engine and workers
    /// may start in any order: whoever is first makes the region.
    pub(crate) fn start(region: &str, rank: u16) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["worker", region, &rank.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = process.stdout.take().context("piped above")?;
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "attached\n", "worker {rank} did not attach");
        let orders = process.stdin.take();
        Ok(Self { process, orders })
    }

    /// Sends one order.
    pub(crate) fn send(&mut self, order: &Order) -> Result<()> {
        let orders = self.orders.as_mut().context("open while it lives")?;
        for byte in order.to_bytes() {
            write!(orders, "{byte:02x}")?;
        }
        Ok(writeln!(orders)?)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // The end of its orders is its end.
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

/// A worker from its start to its end.
pub(crate) fn work(region: &str, rank: &str) -> Result<()> {
    let rank = rank.parse().ok().and_then(Rank::new).context("a rank is a number below 16")?;
    let options = RegionOptions::new(region, BLOCKS, BLOCK_BYTES);
    let mut worker = Worker::attach(&options, rank)?;
    println!("attached");
    for line in std::io::stdin().lines() {
        let order = Order::from_bytes(&from_hex(&line?)?)?;
        let outcome = match order.kind {
            OrderKind::Save => {
                // A real worker has the bytes on its device. If the device copies them in by itself,
                // it reports with `Worker::digest` of what has landed when the copy's event fires.
                let bytes = encode(&order);
                worker.copy_in(&order, &bytes).map(Some)
            }
            OrderKind::Load => {
                let mut bytes = vec![0; usize::try_from(order.meta.bytes)?];
                let copied = worker.copy_out(&order, &mut bytes);
                let line =
                    format!("rank {rank} loaded {} bytes, {}\n", bytes.len(), digest_of(&bytes));
                // In one write, so that the lines of two workers do not run into each other.
                std::io::stderr().write_all(line.as_bytes())?;
                copied.map(|()| None)
            }
        };
        // Always a report: an order that is not reported holds its blocks.
        worker.complete(order.receipt(), outcome.map_or(Outcome::Failed, Outcome::Done))?;
    }
    Ok(())
}

/// An "encoder output" that depends on nothing but its shape.
pub(crate) fn encode(order: &Order) -> Vec<u8> {
    let length = usize::try_from(order.meta.bytes).unwrap_or(0);
    let rows = order.meta.rows.to_le_bytes();
    (0..length).map(|at| rows[at % 4] ^ u8::try_from(at % 251).unwrap_or(0)).collect()
}

fn from_hex(line: &str) -> Result<Vec<u8>> {
    ensure!(line.len().is_multiple_of(2), "an odd number of digits");
    let digits = |at| line.get(at..at + 2).context("digits");
    (0..line.len()).step_by(2).map(|at| Ok(u8::from_str_radix(digits(at)?, 16)?)).collect()
}
