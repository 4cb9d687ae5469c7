//! Workers and nodes in other processes, which do one step at a time, so that a test can kill or stop
//! them between any two: the test binary runs itself.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use chiasm_core::dispatch::{Order, Outcome, Rank};
use chiasm_core::mm_hash::MmHash;
use chiasm_node::{Node, NodeConfig};
use chiasm_region::{RegionOptions, Worker, digest_of};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixtures::{BLOCKS, bytes_for_test};

const ROLE: &str = "CHIASM_NODE_PUPPET";
const SAYS: &str = "puppet says: ";

/// A process that does what it is told, line by line.
pub(crate) struct Puppet {
    process: std::process::Child,
    told: Option<ChildStdin>,
    says: Lines<BufReader<ChildStdout>>,
}

impl Puppet {
    /// The worker of this rank, attached.
    pub(crate) fn worker(dir: &Path, name: &str, rank: u16) -> Self {
        Self::start(&format!("worker {} {name} {rank}", dir.display()))
    }

    /// A node on the region of this name.
    pub(crate) fn node(dir: &Path, name: &str) -> Self {
        Self::start(&format!("node {} {name}", dir.display()))
    }

    fn start(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["puppet::entry", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let told = process.stdin.take();
        let says = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut puppet = Self { process, told, says };
        assert_eq!(puppet.hear(), "there");
        puppet
    }

    /// Does one step; what it says when it is done.
    pub(crate) fn does(&mut self, step: &str, order: &Order) -> String {
        self.begins(step, order);
        self.hear()
    }

    /// Begins a step, whose end is to be [heard](Self::hear).
    pub(crate) fn begins(&mut self, step: &str, order: &Order) {
        self.told(&format!("{step} {}", hex(order)));
    }

    pub(crate) fn told(&mut self, line: &str) {
        writeln!(self.told.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        // The harness may print in front of it on the same line.
        let said = |line: String| line.split_once(SAYS).map(|(_, said)| said.to_owned());
        self.says.by_ref().map_while(Result::ok).find_map(said).expect("the puppet lives")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// SIGKILL, and gone for certain.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn end(mut self) {
        drop(self.told.take());
        assert!(self.process.wait().unwrap().success());
    }
}

fn say(what: &str) {
    println!("{SAYS}{what}");
}

fn hex(order: &Order) -> String {
    order.to_bytes().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

pub(crate) fn order(hex: &str) -> Order {
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect();
    Order::from_bytes(&bytes).unwrap()
}

pub(crate) fn config(dir: &Path, name: &str) -> NodeConfig {
    let mut config = crate::fixtures::config_for_test();
    dir.clone_into(&mut config.region_dir);
    config.region_name = Some(name.to_owned());
    config
}

pub(crate) fn options(dir: &Path, name: &str) -> RegionOptions {
    RegionOptions { dir: dir.to_owned(), ..RegionOptions::new(name, BLOCKS, 4096) }
}

/// The bytes that a puppet saves for this order.
pub(crate) fn bytes_of(order: &Order) -> Vec<u8> {
    bytes_for_test(order.meta.bytes, order.key.generation())
}

#[test]
#[ignore = "the entry point of child processes, which other tests run"]
fn entry() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.split(' ').collect::<Vec<_>>().as_slice() {
        ["worker", dir, name, rank] => {
            let rank = Rank::new(rank.parse().unwrap()).unwrap();
            worker(Worker::attach(&options(Path::new(dir), name), rank).unwrap());
        }
        ["node", dir, name] => node(&Node::start(&config(Path::new(dir), name)).unwrap()),
        other => panic!("unknown role {other:?}"),
    }
}

fn worker(mut worker: Worker) {
    say("there");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (step, order_text) = line.split_once(' ').unwrap();
        let order = order(order_text);
        match step {
            "take" => say("taken"),
            "half" => {
                let half = &bytes_of(&order)[..usize::try_from(order.meta.bytes / 2).unwrap()];
                worker.region().copy_in(&order.extents, 0, half).unwrap();
                say("half");
            }
            "copy" => say(&worker.copy_in(&order, &bytes_of(&order)).unwrap().to_string()),
            "save" => {
                let digest = worker.copy_in(&order, &bytes_of(&order)).unwrap();
                worker.complete(order.receipt(), Outcome::Done(Some(digest))).unwrap();
                say("saved");
            }
            "load" => {
                let mut bytes = vec![0; usize::try_from(order.meta.bytes).unwrap()];
                worker.copy_out(&order, &mut bytes).unwrap();
                worker.complete(order.receipt(), Outcome::Done(None)).unwrap();
                say(&digest_of(&bytes).to_string());
            }
            other => panic!("unknown step {other}"),
        }
    }
}

fn node(node: &Node) {
    say("there");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["order", hash, rank] => {
                let rank = Rank::new(rank.parse().unwrap()).unwrap();
                let meta = crate::workers::meta();
                let order = node.dispatch_save(&MmHash::new(hash).unwrap(), meta, rank).unwrap();
                say(&hex(&order));
            }
            ["saved", count] => {
                let count: u64 = count.parse().unwrap();
                crate::fixtures::wait_until(node, "saved", || {
                    node.dispatch_counters().saved == count
                });
                say("saved");
            }
            other => panic!("unknown step {other:?}"),
        }
    }
}
