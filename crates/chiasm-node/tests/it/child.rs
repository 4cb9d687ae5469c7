//! A producer in another process: the test binary runs itself.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use chiasm_core::endpoint::Endpoint;

const HASHES: &str = "CHIASM_NODE_CHILD_HASHES";
const READS: &str = "CHIASM_NODE_CHILD_READS";
const GATE: &str = "CHIASM_NODE_CHILD_GATE";
const SAYS: &str = "child serves at ";

/// A child process that serves.
pub(crate) struct Child {
    process: std::process::Child,
    pub(crate) endpoint: Endpoint,
}

impl Child {
    /// Starts one that has these entries and waits until it serves.
    pub(crate) fn serve(hashes: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["child::entry", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(HASHES, hashes.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
        // The harness may print in front of it on the same line.
        let said = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once(SAYS).map(|(_, said)| said.to_owned()))
            .expect("the child serves");
        let endpoint = Endpoint::parse(&said).unwrap();
        Self { process, endpoint }
    }

    /// Starts one that reads this hash from the endpoint, and whose thread stops between ack and read.
    pub(crate) fn read(hash: &str, from: &Endpoint, gate: &Path) -> std::process::Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["child::entry", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(READS, from.to_string())
            .env(HASHES, hash)
            .env(GATE, gate)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// SIGKILL, and gone for certain. What it leaves in `/dev/shm` the next node removes.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
#[ignore = "the entry point of child processes, which other tests run"]
fn entry() {
    let Ok(hashes) = std::env::var(HASHES) else { return };
    let hashes: Vec<String> = hashes.split(',').map(ToOwned::to_owned).collect();
    if let (Ok(from), Some(gate)) = (std::env::var(READS), std::env::var_os(GATE)) {
        let from = Endpoint::parse(&from).unwrap();
        let _node = crate::shm::read(&hashes[0], from, gate.into());
        std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input ends");
        return;
    }
    let node = crate::shm::serve(&hashes);
    println!("{SAYS}{}", node.endpoint().unwrap());
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    ended.expect("standard input ends");
}
