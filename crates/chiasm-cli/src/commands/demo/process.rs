//! The demo's other processes: this very command, started as a producer and as a consumer.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::report::Line;

/// Seconds after which a forgotten producer ends by itself.
const PRODUCER_SECONDS: &str = "300";

/// A `chiasm produce` that serves. It is stopped when it is dropped.
#[derive(Debug)]
pub(super) struct Producer {
    child: Child,
    pub(super) endpoint: String,
    pub(super) params: PathBuf,
}

impl Producer {
    /// Starts one and waits until it is ready.
    pub(super) fn start(store: &Path, params: &Path) -> anyhow::Result<Self> {
        let child = this_command()?
            .arg("produce")
            .arg(store)
            .arg("--announce")
            .arg(params)
            .args(["--for", PRODUCER_SECONDS])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the producer")?;
        let endpoint = String::new();
        let mut producer = Self { child, endpoint, params: params.to_owned() };
        let errors = producer.child.stderr.take().context("the producer's standard error")?;
        let mut said = String::new();
        for line in BufReader::new(errors).lines() {
            let line = line?;
            if let Some(endpoint) = line.strip_prefix("ready ") {
                endpoint.clone_into(&mut producer.endpoint);
                return Ok(producer);
            }
            said = said + "\n" + &line;
        }
        bail!("the producer did not start:{said}")
    }

    /// What it announces of one encoding.
    pub(super) fn announcement(&self, hash: &str) -> anyhow::Result<Value> {
        announcement(&self.params, hash)
    }

    /// Stops it and gives the endpoint where nobody listens now.
    pub(super) fn stop(mut self) -> anyhow::Result<String> {
        self.end()?;
        Ok(std::mem::take(&mut self.endpoint))
    }

    fn end(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_none() {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            kill_process(pid.context("the producer's process id")?, Signal::TERM)?;
            self.child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The announcement of one encoding in a file of `ec_transfer_params`.
pub(super) fn announcement(params: &Path, hash: &str) -> anyhow::Result<Value> {
    let params: Value = serde_json::from_slice(&std::fs::read(params)?)?;
    params.get(hash).cloned().with_context(|| format!("no announcement of {hash}"))
}

/// What a `chiasm fetch` said.
#[derive(Debug)]
pub(super) struct Fetched(Value);

/// Runs `chiasm fetch` to its end, with these arguments besides.
pub(super) fn fetch(
    params: &Path,
    allow: &str,
    out: &Path,
    arguments: &[&str],
) -> anyhow::Result<Fetched> {
    let mut command = this_command()?;
    command.args(["fetch", "--json", "--budget", "20", "--allow", allow]);
    command.arg("--params").arg(params).arg("--out").arg(out);
    command.args(arguments);
    let output = command.stdin(Stdio::null()).output().context("cannot start the consumer")?;
    match output.status.code() {
        Some(0 | 1) if !output.stdout.is_empty() => {
            Ok(Fetched(serde_json::from_slice(&output.stdout)?))
        }
        _ => bail!("the consumer failed: {}", String::from_utf8_lossy(&output.stderr).trim_end()),
    }
}

impl Fetched {
    /// What became of one encoding.
    pub(super) fn line(&self, hash: &str, label: &'static str) -> anyhow::Result<Line> {
        let items = self.0["items"].as_array().context("no items")?;
        let item = items.iter().find(|item| item["mm_hash"] == hash);
        let item = item.ok_or_else(|| anyhow!("nothing was said about {hash}"))?;
        let text = |key: &str| item[key].as_str().map(ToOwned::to_owned);
        Ok(Line {
            hash: hash.to_owned(),
            label,
            bytes: item["bytes"].as_u64(),
            plane: text("plane"),
            ms: item["ms"].as_f64().unwrap_or_default(),
            verdict: text("verdict").unwrap_or_default(),
            expected: "",
            reason: text("reason"),
            identical: None,
        })
    }
}

fn this_command() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("where this command is")?))
}
