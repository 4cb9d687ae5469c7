//! A helper process as its node sees it. Shell scripts stand in for helpers that misbehave.

use std::fmt::Write as _;
use std::os::fd::AsFd as _;

use chiasm_nixl::{
    Command, Ended, Event, HelperProcess, Launch, PeerId, Piece, ReadId, Role, SendError, Settings,
    Span, StartError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Far above what any of this takes: a hang is a failure.
const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

fn helper(script: &str) -> HelperProcess {
    let launch = Launch::new("/bin/sh", ["-c", script]);
    HelperProcess::start(&launch, &Settings::default(), &Role::Probe, None).unwrap()
}

/// Every event until the last one.
fn events(helper: &mut HelperProcess) -> (Vec<Event>, Ended) {
    let mut events = Vec::new();
    loop {
        match helper.recv() {
            Some(Event::Ended(ended)) => {
                assert_eq!(helper.recv(), None, "nothing comes after the end");
                return (events, ended);
            }
            Some(event) => events.push(event),
            None => wait(helper),
        }
    }
}

fn wait(helper: &HelperProcess) {
    let mut sources = [PollFd::from_borrowed_fd(helper.as_fd(), PollFlags::IN)];
    assert_eq!(poll(&mut sources, Some(&LIMIT)), Ok(1), "nothing happens for a minute");
}

/// A frame as `printf` takes it.
fn printed(event: &Event) -> String {
    let message = postcard::to_allocvec(event).unwrap();
    let head = u32::try_from(message.len()).unwrap().to_le_bytes();
    head.iter().chain(&message).fold(String::new(), |mut text, byte| {
        write!(text, "\\{byte:03o}").unwrap();
        text
    })
}

#[test]
fn an_end_has_a_code_and_last_words() {
    let (events, ended) = events(&mut helper("echo bad news >&2; exit 3"));
    assert_eq!(events, []);
    assert_eq!((ended.code, ended.signal), (Some(3), None));
    assert_eq!(ended.to_string(), "ended with code 3; its last words: bad news");
}

#[test]
fn a_death_has_a_signal() {
    let (_, ended) = events(&mut helper("kill -SEGV $$"));
    assert_eq!((ended.code, ended.signal), (None, Some(11)));
    assert_eq!(ended.to_string(), "died of signal 11");
}

#[test]
fn what_was_said_before_the_end_is_heard() {
    let said: Vec<_> = (0..50).map(|peer| Event::Loaded { peer: PeerId(peer) }).collect();
    let script: String = said.iter().map(printed).collect();
    let (heard, ended) = events(&mut helper(&format!("printf '{script}' >&0")));
    assert_eq!(heard, said);
    assert_eq!((ended.code, ended.fault), (Some(0), None));
}

#[test]
fn a_helper_that_speaks_nonsense_is_killed() {
    for (bytes, fault) in [
        // A length that no frame has.
        (r"\377\377\377\177", "a frame of 2147483647 bytes"),
        // A message of no known kind.
        (r"\001\000\000\000\377", "a frame that is no message"),
        // A message and something behind it.
        (r"\003\000\000\000\002\001\001", "a frame that is no message"),
        // A text that is longer than its frame.
        (r"\003\000\000\000\001\377\001", "a frame that is no message"),
    ] {
        let (heard, ended) = events(&mut helper(&format!("printf '{bytes}' >&0; exec sleep 1000")));
        assert_eq!(heard, []);
        assert_eq!(ended.signal, Some(9), "{bytes}");
        let said = ended.fault.unwrap();
        assert!(said.contains(fault), "{bytes}: {said}");
    }
}

#[test]
fn a_helper_that_listens_to_nothing_is_told_a_bounded_amount() {
    let mut helper = helper("exec sleep 1000");
    let command = Command::LoadPeer {
        peer: PeerId(1),
        agent_name: "a".into(),
        metadata: vec![0; 60_000],
        span: Span { address: 0, bytes: 0 },
    };
    let taken = (0..1000).take_while(|_| helper.send(&command).is_ok()).count();
    assert_eq!(helper.send(&command), Err(SendError::Full));
    // 4 MiB here, and what the socket holds.
    assert!((70..90).contains(&taken), "{taken} commands of 60,000 bytes");
    helper.kill();
    let (_, ended) = events(&mut helper);
    assert_eq!(ended.signal, Some(9));
    assert_eq!(helper.send(&command), Err(SendError::Ended));
}

#[test]
fn a_command_that_waited_is_written_when_there_is_room() {
    let mut helper = helper("head -c 2000000 >/dev/null; exit 7");
    let command = Command::LoadPeer {
        peer: PeerId(1),
        agent_name: "a".into(),
        metadata: vec![0; 60_000],
        span: Span { address: 0, bytes: 0 },
    };
    for _ in 0..40 {
        assert_eq!(helper.send(&command), Ok(()));
    }
    let (_, ended) = events(&mut helper);
    assert_eq!(ended.code, Some(7), "it has had 2,000,000 bytes");
}

#[test]
fn much_noise_on_standard_error_is_kept_to_its_end() {
    let script = "i=0; while [ $i -lt 20000 ]; do echo noise noise noise; i=$((i+1)); done >&2; \
                  printf 'the \\033 end' >&2";
    let (_, ended) = events(&mut helper(script));
    assert!(ended.last_words.len() <= 2048, "{}", ended.last_words.len());
    assert!(ended.last_words.ends_with("the   end"), "and nothing that a terminal would obey");
}

/// Nobody could tell it anything, or hear of it, and the node would wait for its end for ever.
#[test]
fn a_helper_that_closes_its_socket_and_lives_on_is_killed() {
    let (heard, ended) = events(&mut helper("exec 0<&-; exec sleep 1000"));
    assert_eq!((heard, ended.signal), (vec![], Some(9)));
}

/// The node's thread must get away from it.
#[test]
fn a_helper_that_writes_errors_without_end_does_not_hold_up_the_node() {
    let mut helper = helper("exec yes >&2");
    for _ in 0..100 {
        assert_eq!(helper.recv(), None);
        wait(&helper);
    }
    helper.kill();
    let (_, ended) = events(&mut helper);
    assert_eq!(ended.signal, Some(9));
}

#[test]
fn a_helper_that_somebody_else_has_reaped_has_ended() {
    let mut helper = helper("exit 0");
    let pid = rustix::process::Pid::from_raw(i32::try_from(helper.id()).unwrap());
    // As an engine does that collects all children.
    let reaped = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
    assert!(reaped.unwrap().is_some());
    helper.kill();
    let (_, ended) = events(&mut helper);
    assert_eq!(ended.signal, None);
}

const PUPPET: &str = "CHIASM_NIXL_PUPPET";

/// Not a test: what `helper_keeps_nothing_of_the_engines_open` starts.
#[test]
#[ignore = "the program of a helper process, started by a test"]
fn entry() {
    if std::env::var_os(PUPPET).is_some() {
        chiasm_nixl::helper_main();
    }
}

/// Drivers and libraries open descriptors that a new program inherits.
#[test]
fn helper_keeps_nothing_of_the_engines_open() {
    let (theirs, inherited) = std::io::pipe().unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    let (_ours, stdin) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["process::entry", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(PUPPET, "1")
        .stdin(std::os::fd::OwnedFd::from(stdin))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(inherited);
    let mut sources = [PollFd::new(&theirs, PollFlags::IN)];
    let closed = poll(&mut sources, Some(&LIMIT));
    let lives = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((closed, lives), (Ok(1), true), "it waits for its set-up, and has closed the rest");
}

#[test]
fn a_dropped_helper_is_gone() {
    let helper = helper("exec sleep 1000");
    let id = i32::try_from(helper.id()).unwrap();
    let pid = rustix::process::Pid::from_raw(id).unwrap();
    drop(helper);
    assert!(rustix::process::test_kill_process(pid).is_err(), "killed and reaped");
}

#[test]
fn a_dropped_helper_that_peers_count_on_ends_by_itself() {
    let read = Command::Read {
        read: ReadId(1),
        peer: PeerId(1),
        pieces: vec![Piece { local_offset: 0, remote_address: 0, bytes: 1 }],
        notification: Vec::new(),
    };
    for command in [Command::Live(true), read] {
        let dir = tempfile::tempdir().unwrap();
        let through = dir.path().join("through");
        let up = printed(&Event::Warning { text: "up".into() });
        let at_the_end = format!(": > {}", through.display());
        let mut helper = helper(&format!("printf '{up}' >&0; cat > /dev/null; {at_the_end}"));
        while helper.recv().is_none() {
            wait(&helper);
        }
        helper.send(&command).unwrap();
        drop(helper);
        assert!(through.exists(), "it was killed: {command:?}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let launch = Launch::new("/nowhere/chiasm", ["nixl-helper"]);
    let error =
        HelperProcess::start(&launch, &Settings::default(), &Role::Probe, None).unwrap_err();
    assert!(matches!(error, StartError::Spawn { .. }));
    assert!(error.to_string().contains("/nowhere/chiasm"), "{error}");
}

#[test]
fn a_role_that_needs_a_region_does_not_start_without() {
    let launch = Launch::new("/bin/true", [""; 0]);
    let started = HelperProcess::start(&launch, &Settings::default(), &Role::Read, None);
    assert!(matches!(started, Err(StartError::System(_))));
}
