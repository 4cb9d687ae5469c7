//! Against libzmq, over real sockets: pyzmq in a process of its own, in both roles.
//!
//! The peer is `tests/interop/zmtp/peer.py`, run by the interpreter that `CHIASM_TEST_PYTHON`
//! names, else by `.venv/bin/python` of the workspace. A missing interpreter fails the tests.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use chiasm_core::time::Nanos;
use chiasm_zmtp::{CloseReason, Connection, Event, Limits, Role, SocketType};

/// No test waits longer for anything. Only a failing one waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `peer.py`; killed when dropped.
struct Peer {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Peer {
    fn run(arguments: &[&str]) -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let python = std::env::var_os("CHIASM_TEST_PYTHON")
            .map_or_else(|| root.join(".venv/bin/python"), PathBuf::from);
        let mut process = Command::new(&python)
            .arg(root.join("tests/interop/zmtp/peer.py"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "cannot run {}: {error}; set CHIASM_TEST_PYTHON to an interpreter with pyzmq",
                    python.display()
                )
            });
        let lines = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, lines }
    }

    /// The next line that the peer says; empty once it has ended.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the peer's output is text");
        line.trim_end().to_owned()
    }

    /// Freezes the process; its host still takes bytes.
    fn freeze(&self) {
        let id = self.process.id().to_string();
        let status = Command::new("kill").args(["-STOP", &id]).status().expect("kill runs");
        assert!(status.success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A connection and its socket, pumped by the test.
struct End {
    stream: TcpStream,
    connection: Connection,
    origin: Instant,
    /// All that the peer sent.
    received: Vec<u8>,
}

impl End {
    fn new(role: Role, limits: &Limits, stream: TcpStream) -> Self {
        stream.set_write_timeout(Some(PATIENCE)).expect("a valid timeout");
        let connection = Connection::new(role, limits, Nanos::ZERO);
        Self { stream, connection, origin: Instant::now(), received: Vec::new() }
    }

    /// Waits for the next connection to `listener`.
    fn accept(listener: &TcpListener, limits: &Limits) -> Self {
        listener.set_nonblocking(true).expect("a listener");
        let began = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).expect("a stream");
                    return Self::new(Role::Router, limits, stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(began.elapsed() < PATIENCE, "the peer did not connect");
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn now(&self) -> Nanos {
        Nanos::ZERO.after(self.origin.elapsed())
    }

    /// Writes what is queued.
    fn flush(&mut self) {
        while !self.connection.output().is_empty() {
            match self.stream.write(self.connection.output()) {
                Ok(written) => self.connection.consume_output(self.now(), written),
                Err(error) => self.connection.close(CloseReason::Io { error: error.to_string() }),
            }
        }
    }

    /// Reads once or lets time pass, and writes what is queued.
    fn step(&mut self) {
        assert!(self.origin.elapsed() < PATIENCE, "the peer did nothing that was waited for");
        self.flush();
        let wait = self.connection.poll_timeout().since(self.now());
        let wait = wait.clamp(Duration::from_millis(1), Duration::from_secs(1));
        self.stream.set_read_timeout(Some(wait)).expect("a valid timeout");
        let mut buffer = vec![0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.connection.close(CloseReason::PeerClosed),
            Ok(count) => {
                self.received.extend(&buffer[..count]);
                self.connection.receive(self.now(), &buffer[..count]);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => self.connection.close(CloseReason::Io { error: error.to_string() }),
        }
        self.connection.handle_timeout(self.now());
        self.flush();
    }

    fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.connection.poll_event() {
                return event;
            }
            self.step();
        }
    }

    fn ready(&mut self) -> chiasm_zmtp::Peer {
        match self.event() {
            Event::Ready(peer) => peer,
            other => panic!("{other:?}"),
        }
    }

    fn message(&mut self) -> Vec<u8> {
        match self.event() {
            Event::Message(payload) => payload,
            other => panic!("{other:?}"),
        }
    }

    fn closed(&mut self) -> CloseReason {
        match self.event() {
            Event::Closed(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, payload: Vec<u8>) {
        self.connection.send(self.now(), payload).expect("ready and not full");
    }

    /// Steps until the peer has sent `count` commands of this name.
    fn see_commands(&mut self, name: [u8; 4], count: usize) {
        let seen = |received: &[u8]| received.windows(4).filter(|window| *window == name).count();
        while seen(&self.received) < count {
            self.step();
            assert_eq!(self.connection.poll_event(), None);
        }
    }

    /// Answers each request as `peer.py` expects it.
    fn answer(&mut self, requests: usize) {
        for _ in 0..requests {
            let mut payload = self.message();
            payload.reverse();
            self.send(payload);
        }
        self.flush();
    }
}

/// A listener and a pyzmq socket of this type that connects to it.
fn connecting(role: &str, options: &[&str]) -> (TcpListener, Peer) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let peer = Peer::run(&[&[role, &port], options].concat());
    (listener, peer)
}

/// A pyzmq ROUTER and a dealer of ours that is connected to it.
fn dealing(limits: &Limits, options: &[&str]) -> (Peer, End) {
    let mut peer = Peer::run(&[&["router"], options].concat());
    let port: u16 = peer.line().parse().expect("the peer prints its port");
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the peer listens");
    let mut end = End::new(Role::Dealer, limits, stream);
    assert_eq!(end.ready().socket_type, SocketType::Router);
    (peer, end)
}

#[test]
fn a_pyzmq_dealer_is_served() {
    let (listener, mut peer) = connecting("dealer", &["IDENTITY=consumer"]);
    let mut end = End::accept(&listener, &Limits::for_router());
    let ready = end.ready();
    assert_eq!((ready.socket_type, ready.identity), (SocketType::Dealer, b"consumer".to_vec()));
    end.answer(10);
    assert_eq!(peer.line(), "ok");
}

#[test]
fn a_pyzmq_dealer_comes_back_after_a_close() {
    let (listener, mut peer) = connecting("dealer", &[]);
    let mut first = End::accept(&listener, &Limits::for_router());
    assert_eq!(first.ready().identity, b"");
    drop(first);
    // libzmq may have lost the request that it sent on the first connection, but it reconnects.
    let mut second = End::accept(&listener, &Limits::for_router());
    second.ready();
    drop(second);
    drop(peer.process.kill());
}

#[test]
fn a_pyzmq_req_is_served() {
    let (listener, mut peer) = connecting("req", &[]);
    let mut end = End::accept(&listener, &Limits::for_router());
    assert_eq!(end.ready().socket_type, SocketType::Req);
    end.answer(1);
    assert_eq!(peer.line(), "ok");
}

#[test]
fn a_pyzmq_router_serves_our_dealer() {
    let (_peer, mut end) = dealing(&Limits::for_dealer(), &[]);
    for size in [0, 1, 255, 256, 65_536, 1_000_000] {
        end.send(vec![1; size]);
        assert!(end.message() == vec![1; size]);
    }
    // As large as an upstream ack of a region of 1e6 blocks.
    end.send(b"bytes:14000000".to_vec());
    assert!(end.message() == vec![0; 14_000_000]);
}

#[test]
fn a_pyzmq_socket_of_another_type_is_refused() {
    let (listener, _peer) = connecting("pub", &[]);
    let mut end = End::accept(&listener, &Limits::for_router());
    let theirs = "PUB".to_owned();
    assert_eq!(end.closed(), CloseReason::SocketType { ours: Role::Router, theirs });
}

#[test]
fn a_pyzmq_peer_with_another_mechanism_is_refused() {
    let (listener, _peer) = connecting("dealer", &["PLAIN_USERNAME=user", "PLAIN_PASSWORD=secret"]);
    let mut end = End::accept(&listener, &Limits::for_router());
    // libzmq leaves as soon as it has read our greeting, most often before it has sent the part of
    // its own that names the mechanism.
    assert!(matches!(end.event(), Event::Closed(_)));
}

#[test]
fn a_pyzmq_message_past_the_limit_closes_its_connection() {
    let limits = Limits { max_message_bytes: 100_000, ..Limits::for_dealer() };
    let (_peer, mut end) = dealing(&limits, &[]);
    end.send(b"bytes:100001".to_vec());
    assert_eq!(end.closed(), CloseReason::MessageTooLarge { announced: 100_001, limit: 100_000 });
}

#[test]
fn pyzmq_heartbeats_are_answered() {
    // Fifteen PINGs, one every 200 ms: without answers pyzmq would be gone after the eleventh.
    let (listener, mut peer) =
        connecting("dealer", &["HEARTBEAT_IVL=200", "HEARTBEAT_TIMEOUT=2000", "watch"]);
    // PINGs of our own would count as answers.
    let limits = Limits { heartbeat_interval: Duration::MAX, ..Limits::for_router() };
    let mut end = End::accept(&listener, &limits);
    end.ready();
    assert_eq!(peer.line(), "handshake");
    end.see_commands(*b"PING", 15);
    assert!(end.connection.is_ready());
}

#[test]
fn pyzmq_answers_our_heartbeats_in_both_roles() {
    let every = Duration::from_millis(100);
    let limits = Limits { heartbeat_interval: every, ..Limits::for_router() };
    let (listener, _peer) = connecting("dealer", &["watch"]);
    let mut end = End::accept(&listener, &limits);
    end.ready();
    end.see_commands(*b"PONG", 5);

    let limits = Limits { heartbeat_interval: every, ..Limits::for_dealer() };
    let (_peer, mut end) = dealing(&limits, &[]);
    end.see_commands(*b"PONG", 5);
}

#[test]
fn hazard_c11_a_frozen_pyzmq_peer_is_noticed() {
    let limits = Limits {
        heartbeat_interval: Duration::from_millis(200),
        heartbeat_timeout: Duration::from_secs(2),
        ..Limits::for_dealer()
    };
    let (peer, mut end) = dealing(&limits, &[]);
    end.send(b"alive".to_vec());
    assert_eq!(end.message(), b"evila");
    peer.freeze();
    assert_eq!(end.closed(), CloseReason::HeartbeatTimeout { limit: Duration::from_secs(2) });
}

#[test]
fn pyzmq_with_heartbeats_notices_that_we_froze() {
    let (listener, mut peer) =
        connecting("dealer", &["HEARTBEAT_IVL=200", "HEARTBEAT_TIMEOUT=500", "watch"]);
    let mut end = End::accept(&listener, &Limits::for_router());
    end.ready();
    assert_eq!(peer.line(), "handshake");
    // From here on nobody pumps.
    assert_eq!(peer.line(), "disconnected");
}

#[test]
fn pyzmq_without_heartbeats_notices_that_we_froze_by_our_time_to_live() {
    // Upstream's sockets are like this one: their heartbeat options come after connect.
    let limits = Limits {
        heartbeat_interval: Duration::from_millis(100),
        heartbeat_ttl: Duration::from_millis(500),
        ..Limits::for_router()
    };
    let (listener, mut peer) = connecting("dealer", &["watch"]);
    let mut end = End::accept(&listener, &limits);
    end.ready();
    assert_eq!(peer.line(), "handshake");
    end.see_commands(*b"PONG", 1);
    // From here on nobody pumps.
    assert_eq!(peer.line(), "disconnected");
}
