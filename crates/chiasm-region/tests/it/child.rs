//! Other processes: the test binary runs itself with a task.
//!
//! A child says one line when its task is done and then waits for its standard input to end, so no
//! test needs to wait for a time.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use chiasm_core::dispatch::Outcome;
use chiasm_region::{LandedDigest, Region, RegionError, RegionOptions, Worker};

use crate::support::{NAME, extent, options_for_test, pattern, rank, save_for_test, spawn, traces};

const TASK: &str = "CHIASM_REGION_CHILD_TASK";
const DIR: &str = "CHIASM_REGION_CHILD_DIR";
const SAYS: &str = "child says: ";

/// A child process that has done its task and now waits.
pub(crate) struct Child {
    process: std::process::Child,
    /// What it said.
    pub(crate) said: String,
}

impl Child {
    /// Start a child with `task` in `dir` and wait until it has spoken.
    pub(crate) fn run(task: &str, dir: &Path) -> Self {
        Self::start(Command::new(std::env::current_exe().unwrap()), task, dir)
    }

    /// As [`Child::run`], as the first process of a PID namespace of its own. That needs root: CI runs
    /// as root. It cannot be killed, since only its parent is ours.
    pub(crate) fn run_in_pid_namespace(task: &str, dir: &Path) -> Self {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--pid", "--fork", "--mount-proc", "--"])
            .arg(std::env::current_exe().unwrap());
        Self::start(unshare, task, dir)
    }

    fn start(mut command: Command, task: &str, dir: &Path) -> Self {
        command
            .args(["child::entry", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(TASK, task)
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = spawn(&mut command);
        let lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
        // The harness may print in front of it on the same line.
        let said = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once(SAYS).map(|(_, said)| said.to_owned()))
            .expect("the child does its task");
        Self { process, said }
    }

    /// SIGKILL it and reap it.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Let it go on to its end.
    pub(crate) fn finish(mut self) -> ExitStatus {
        drop(self.process.stdin.take());
        self.process.wait().unwrap()
    }
}

#[test]
#[ignore = "the entry point of child processes, which other tests run"]
fn entry() {
    let (Ok(task), Some(dir)) = (std::env::var(TASK), std::env::var_os(DIR)) else { return };
    let dir = PathBuf::from(dir);
    match task.as_str() {
        "hold" => {
            let _region = Region::create(&options_for_test(&dir)).unwrap();
            say_and_wait("created");
        }
        "serve" => {
            let region = Region::create(&options_for_test(&dir)).unwrap();
            region.copy_in(&[extent(2, 3)], 0, &pattern(3000)).unwrap();
            say_and_wait("created");
        }
        "attach" => {
            let region = Region::attach(&dir.join(NAME)).unwrap();
            let extents = [extent(8, 2), extent(0, 1)];
            let mut digest = LandedDigest::new();
            region.copy_in_digested(&extents, 500, &pattern(2500), &mut digest).unwrap();
            say_and_wait(&digest.finish().to_string());
        }
        "join" => {
            let _region = Region::create_or_attach(&options_for_test(&dir)).unwrap();
            say_and_wait("joined");
        }
        "node" => {
            let mut region = Region::create_or_attach(&options_for_test(&dir)).unwrap();
            region.claim_node().unwrap();
            say_and_wait("claimed");
        }
        "work" => {
            let mut worker = Worker::attach(&options_for_test(&dir), rank(3)).unwrap();
            let digest = worker.copy_in(&save_for_test(3), &pattern(2500)).unwrap();
            let outcome = Outcome::Done(Some(digest));
            worker.complete(save_for_test(3).receipt(), outcome).unwrap();
            say_and_wait(&std::process::id().to_string());
        }
        "reclaim" => {
            let removed = chiasm_region::reclaim_stale(&dir).unwrap();
            say_and_wait(&removed.len().to_string());
        }
        "panic" => {
            let _region = Region::create(&options_for_test(&dir)).unwrap();
            say_and_wait("created");
            panic!("while a region is held");
        }
        "fork" => forked(&dir),
        "send to nobody" => send_to_nobody(&dir),
        "no address space" => no_address_space(&dir),
        _ => panic!("unknown task {task}"),
    }
}

fn say_and_wait(what: &str) {
    println!("{SAYS}{what}");
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    ended.expect("standard input ends");
}

/// A forked child ends and drops its copy of the region.
#[expect(unsafe_code, reason = "a fork, as a Python engine does it")]
fn forked(dir: &Path) {
    let region = Region::create(&options_for_test(dir)).unwrap();
    // SAFETY: the child only drops a region, which needs no lock that another thread could hold
    // but the allocator's, which glibc keeps usable across a fork, and leaves without running exit
    // handlers.
    match unsafe { libc::fork() } {
        0 => {
            drop(region);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is writable, the child is ours.
            let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((reaped, status), (child, 0));
            region.copy_in(&[extent(0, 10)], 0, &pattern(10_000)).unwrap();
            say_and_wait(if region.path().exists() { "still there" } else { "gone" });
        }
    }
}

/// With SIGPIPE as a C program (or Python's embedding host) has it.
#[expect(unsafe_code, reason = "the default disposition of SIGPIPE, which Rust's start changes")]
fn send_to_nobody(dir: &Path) {
    let region = Region::create(&options_for_test(dir)).unwrap();
    // SAFETY: no handler is installed, only the default disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(far);
    let sent = region.send(near.as_fd(), &[extent(0, 1)], 0, 1000);
    say_and_wait(&format!("{:?}", sent.unwrap_err().kind()));
}

/// The file can be reserved but not mapped.
fn no_address_space(dir: &Path) {
    use rustix::process::{Resource, Rlimit, setrlimit};

    let before = traces(dir);
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let used = pages * rustix::param::page_size() as u64;
    let limit = Rlimit { current: Some(used + (16 << 20)), maximum: None };
    setrlimit(Resource::As, limit).unwrap();
    let options = RegionOptions { blocks: 64, block_size_bytes: 1 << 20, ..options_for_test(dir) };
    let outcome = match Region::create(&options) {
        Err(RegionError::Io { operation, source, .. }) => {
            format!("cannot {operation}: {:?}", source.kind())
        }
        other => format!("{other:?}"),
    };
    let clean = traces(dir) == before;
    say_and_wait(&format!("{outcome}, clean: {clean}"));
}
