//! One call never moves more than a slice, so that a large entry holds up nobody.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::thread;

use chiasm_core::producer::GrantToken;
use chiasm_planes::tcp::{Progress, SLICE_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::{Rig, answer, extent, tcp_pair, unix_pair};

const BYTES: usize = 8 << 20;
const BLOCKS: u32 = 83_887;

fn wait_for(socket: &OwnedFd, flags: PollFlags) {
    let mut sockets = [PollFd::new(socket, flags)];
    let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert!(poll(&mut sockets, Some(&limit)).unwrap() > 0, "the other end has stopped");
}

/// The producer's side is a thread that keeps the socket full.
#[test]
fn a_consumer_takes_at_most_a_slice_per_call() {
    let (theirs, ours) = tcp_pair();
    let mut rig = Rig::new(BLOCKS, (unix_pair().0, ours));
    rig.start(0, GrantToken([1; 16]), vec![extent(0, BLOCKS)], BYTES);
    let writer = thread::spawn(move || {
        let mut stream = TcpStream::from(theirs);
        stream.set_nonblocking(false).unwrap();
        stream.write_all(&answer(0x81, 0, BYTES as u64)).unwrap();
        stream.write_all(&vec![7; BYTES]).unwrap();
        stream
    });
    let mut calls = 0;
    while rig.ended.is_empty() {
        wait_for(&rig.read_socket, PollFlags::IN);
        let before = rig.read.backlog_bytes();
        let progress = rig.progress_read();
        let moved = before - rig.read.backlog_bytes();
        assert!(moved <= SLICE_BYTES as u64, "{moved} bytes in one call");
        assert!(!matches!(progress, Progress::Closed(_)), "{progress:?}");
        calls += 1;
    }
    assert!(calls >= BYTES / SLICE_BYTES, "{calls}");
    drop(writer.join().unwrap());
}

#[test]
fn a_producer_gives_at_most_a_slice_per_call() {
    let (ours, theirs) = tcp_pair();
    let mut rig = Rig::new(BLOCKS, (ours, unix_pair().0));
    let token = rig.source.grant(&vec![7; BYTES]);
    let reader = thread::spawn(move || {
        let mut stream = TcpStream::from(theirs);
        stream.set_nonblocking(false).unwrap();
        stream.write_all(b"\xC7hiasm\x01\x00\x01\0\0\0\0").unwrap();
        stream.write_all(&token.0).unwrap();
        let mut bytes = vec![0; 13 + BYTES];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    });
    let mut calls = 0;
    while rig.source.completed.is_empty() {
        let write = rig.serve.wants_write();
        wait_for(&rig.serve_socket, if write { PollFlags::OUT } else { PollFlags::IN });
        let progress = rig.progress_serve();
        assert!(!matches!(progress, Progress::Closed(_)), "{progress:?}");
        calls += 1;
    }
    // How much one call has sent cannot be seen, but how many it took.
    assert!(calls >= BYTES / SLICE_BYTES, "{calls}");
    let bytes = reader.join().unwrap();
    assert_eq!(bytes[..13], answer(0x81, 0, BYTES as u64));
    assert!(bytes[13..].iter().all(|byte| *byte == 7));
}
