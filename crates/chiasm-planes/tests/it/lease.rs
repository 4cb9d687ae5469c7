//! No byte is sent after the end of a lease (PROTOCOL 45, S2).

use chiasm_core::time::Nanos;
use chiasm_planes::tcp::Progress;
use rustix::io::ioctl_fionread;

use crate::support::{LEASE, Rig, at, bytes_for_test, extent, unix_pair};

fn lease_end() -> Nanos {
    at(0).after(LEASE)
}

fn later(nanos: Nanos) -> Nanos {
    at(nanos.as_nanos() + 1)
}

/// A large entry is half way out; how many of its bytes the consumer can still read.
fn half_way() -> (Rig, u64) {
    let mut rig = Rig::new(30_000, unix_pair());
    let bytes = bytes_for_test(1_500_000, 1);
    let token = rig.source.grant(&bytes);
    rig.start(0, token, vec![extent(0, 15_000)], bytes.len());
    rig.progress_read();
    assert_eq!(rig.progress_serve(), Progress::Blocked);
    let sent = ioctl_fionread(&rig.read_socket).unwrap();
    assert!(sent > 13 && sent < 1_500_000);
    (rig, sent)
}

#[test]
fn at_its_very_end_a_lease_still_serves() {
    let (mut rig, before) = half_way();
    rig.progress_read();
    rig.source.now = lease_end();
    assert_eq!(rig.progress_serve(), Progress::Blocked);
    assert!(ioctl_fionread(&rig.read_socket).unwrap() > 0, "{before} and more");
}

#[test]
fn a_lease_that_ends_on_the_way_closes_the_stream_before_another_byte() {
    let (mut rig, _) = half_way();
    rig.progress_read();
    assert_eq!(ioctl_fionread(&rig.read_socket).unwrap(), 0, "there is room to send");
    rig.source.now = later(lease_end());
    let Progress::Closed(reason) = rig.progress_serve() else { panic!("it went on") };
    assert!(reason.contains("lease ran out"), "{reason}");
    assert_eq!(ioctl_fionread(&rig.read_socket).unwrap(), 0);
    let stream = rig.serve.serving().expect("lost, for its owner to report");
    assert_eq!(rig.source.completed, []);
    rig.source.producer.stream_ended(stream, false, &mut rig.source.cache);
    assert_eq!(rig.source.producer.live_grants(), 0);
}

#[test]
fn a_token_whose_lease_is_over_is_refused_before_any_byte() {
    let mut rig = Rig::new(10, unix_pair());
    let token = rig.source.grant(&bytes_for_test(150, 1));
    rig.start(0, token, vec![extent(0, 2)], 150);
    rig.progress_read();
    rig.source.now = later(lease_end());
    assert_eq!(rig.progress_serve(), Progress::Blocked);
    assert_eq!(ioctl_fionread(&rig.read_socket).unwrap(), 13, "a refusal and nothing else");
    rig.progress_read();
    assert_eq!(rig.ended.len(), 1);
}

/// What moves a byte is what counts for the limits on silence.
#[test]
fn progress_is_dated_by_the_last_byte() {
    let (mut rig, _) = half_way();
    rig.source.now = at(5);
    rig.progress_serve();
    assert_eq!(rig.serve.last_progress(), at(0), "blocked: nothing moved");
    rig.progress_read();
    rig.progress_serve();
    assert_eq!(rig.serve.last_progress(), at(5));
}
