//! Drives one helper process by hand: commands as JSON lines in, events as JSON lines out.
//!
//! `drive REGION_DIR NAME BLOCKS BLOCK_BYTES SETTINGS ROLE` makes a region, or attaches to the one of that
//! name, and starts a helper over it; ROLE is `read`, `probe`, or `serve:AGENT_NAME`, SETTINGS a JSON
//! object. `{"read": .., "repeat": n}` times reads. It ends when its standard input does. The tests against real NIXL use it; the first line that
//! it writes has the region's path and the helper's process id.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use chiasm_nixl::{
    Command, Event, HELPER_ARGUMENT, HelperProcess, Launch, PeerId, ReadId, Role, Settings, Span,
    helper_main, pieces,
};
use chiasm_region::{Region, RegionOptions};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|it| it == HELPER_ARGUMENT) {
        helper_main();
    }
    match drive(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("drive: {error}");
            ExitCode::FAILURE
        }
    }
}

fn drive(arguments: &[String]) -> Outcome<()> {
    let [dir, name, blocks, block_bytes, settings, role] = arguments else {
        return Err("drive REGION_DIR NAME BLOCKS BLOCK_BYTES SETTINGS ROLE".into());
    };
    let mut options = RegionOptions::new(name, blocks.parse()?, block_bytes.parse()?);
    options.dir = PathBuf::from(dir);
    let region = Region::create_or_attach(&options)?;
    let settings: Settings = serde_json::from_str(settings)?;
    let role = match (role.as_str(), role.strip_prefix("serve:")) {
        (_, Some(agent_name)) => Role::Serve { agent_name: agent_name.into() },
        ("read", _) => Role::Read,
        ("probe", _) => Role::Probe,
        _ => return Err("ROLE is read, probe or serve:NAME".into()),
    };
    let launch = Launch::this_program()?;
    let mut helper = HelperProcess::start(&launch, &settings, &role, Some(&region))?;
    say(&json!({ "region": region.path(), "helper": helper.id() }))?;
    let region_bytes = u64::from(region.blocks()) * region.block_size_bytes();

    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(stdin);
    let mut line = String::new();
    loop {
        while let Some(event) = helper.recv() {
            say(&shown(&event))?;
            if matches!(event, Event::Ended(_)) {
                // The region stays for whoever looks at it.
                io::copy(&mut lines, &mut io::sink())?;
                return Ok(());
            }
        }
        if lines.buffer().is_empty() {
            let mut sources = [
                PollFd::from_borrowed_fd(helper.as_fd(), PollFlags::IN),
                PollFd::new(lines.get_ref(), PollFlags::IN),
            ];
            poll(&mut sources, None)?;
            if sources[1].revents().is_empty() {
                continue;
            }
        }
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match serde_json::from_str(&line)? {
            Value::String(word) if word == "kill" => helper.kill(),
            Value::Object(fields) if fields.contains_key("repeat") => {
                say(&timed(&mut helper, &fields["read"], &fields["repeat"], region_bytes)?)?;
            }
            value => match command(&value, region_bytes) {
                Ok(command) => helper.send(&command)?,
                Err(error) => say(&json!({ "refused": error.to_string() }))?,
            },
        }
    }
}

/// One read after another, as a node sees them: from the command to the event, in seconds.
fn timed(
    helper: &mut HelperProcess,
    read: &Value,
    repeat: &Value,
    region_bytes: u64,
) -> Outcome<Value> {
    let command = command(read, region_bytes)?;
    let mut took_s = Vec::new();
    for _ in 0..repeat.as_u64().unwrap_or(1) {
        let started = Instant::now();
        helper.send(&command)?;
        let event = loop {
            if let Some(event) = helper.recv() {
                break event;
            }
            poll(&mut [PollFd::from_borrowed_fd(helper.as_fd(), PollFlags::IN)], None)?;
        };
        took_s.push(started.elapsed().as_secs_f64());
        if !matches!(event, Event::ReadDone { .. }) {
            return Ok(shown(&event));
        }
    }
    Ok(json!({ "took_s": took_s }))
}

fn say(value: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

/// Commands as serde has them; and `{"read": id, "peer": id, "local": [[offset, bytes]], "remote":
/// [[address, bytes]], "span": [address, bytes], "notification": text}`, laid out by `pieces`.
fn command(value: &Value, region_bytes: u64) -> Outcome<Command> {
    if value.get("read").is_none() {
        return Ok(serde_json::from_value(value.clone())?);
    }
    let runs = |name: &str| -> Outcome<Vec<(u64, u64)>> {
        Ok(serde_json::from_value(value[name].clone())?)
    };
    let (address, bytes): (u64, u64) = serde_json::from_value(value["span"].clone())?;
    let text = value["notification"].as_str().unwrap_or_default();
    Ok(Command::Read {
        read: ReadId(serde_json::from_value(value["read"].clone())?),
        peer: PeerId(serde_json::from_value(value["peer"].clone())?),
        pieces: pieces(runs("local")?, runs("remote")?, Span { address, bytes }, region_bytes)?,
        notification: text.into(),
    })
}

fn shown(event: &Event) -> Value {
    match event {
        Event::Ended(ended) => json!({ "Ended": {
            "code": ended.code,
            "signal": ended.signal,
            "text": ended.to_string(),
        } }),
        event => serde_json::to_value(event).unwrap_or_default(),
    }
}
