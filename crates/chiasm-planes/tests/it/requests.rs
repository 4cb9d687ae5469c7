//! What a consumer may send to a producer's end of a stream.

use chiasm_planes::tcp::{MAX_PIPELINED, Progress};

use crate::support::{Rig, answer, bytes_for_test, unix_pair};

const PREAMBLE: &[u8] = b"\xC7hiasm\x01\x00";

fn send(rig: &Rig, bytes: &[u8]) {
    assert_eq!(rustix::io::write(&rig.read_socket, bytes).unwrap(), bytes.len());
}

fn read_frame(id: u32, token: [u8; 16]) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend(id.to_be_bytes());
    bytes.extend(token);
    bytes
}

fn received(rig: &Rig) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    match rustix::io::read(&rig.read_socket, &mut bytes) {
        Ok(count) => bytes.truncate(count),
        Err(error) => {
            assert_eq!(error, rustix::io::Errno::AGAIN);
            bytes.clear();
        }
    }
    bytes
}

#[test]
fn a_stream_may_come_byte_by_byte() {
    let mut rig = Rig::new(10, unix_pair());
    let bytes = bytes_for_test(150, 1);
    let token = rig.source.grant(&bytes);
    for byte in [PREAMBLE, &read_frame(7, token.0), &read_frame(8, token.0)].concat() {
        send(&rig, &[byte]);
        assert_eq!(rig.progress_serve(), Progress::Blocked);
    }
    let expected = [answer(0x81, 7, 150), bytes, answer(0x82, 8, 0)].concat();
    assert!(received(&rig) == expected);
}

#[test]
fn another_preamble_is_refused_at_its_first_wrong_byte() {
    for wrong in 0..PREAMBLE.len() {
        let mut rig = Rig::new(10, unix_pair());
        let mut start = PREAMBLE[..=wrong].to_vec();
        start[wrong] ^= 1;
        send(&rig, &start);
        let Progress::Closed(reason) = rig.progress_serve() else { panic!("byte {wrong}") };
        assert!(reason.contains("preamble"), "{reason}");
        assert_eq!(received(&rig), b"");
    }
}

#[test]
fn a_frame_of_another_kind_ends_the_stream_and_nothing_was_opened_for_it() {
    let mut rig = Rig::new(10, unix_pair());
    let token = rig.source.grant(&bytes_for_test(150, 1));
    let mut frame = read_frame(0, token.0);
    frame[0] = 2;
    send(&rig, &[PREAMBLE, &frame].concat());
    assert!(matches!(rig.progress_serve(), Progress::Closed(_)));
    assert_eq!((rig.serve.serving(), rig.source.producer.live_grants()), (None, 1));
}

#[test]
fn an_end_of_stream_is_an_end() {
    let mut rig = Rig::new(10, unix_pair());
    send(&rig, &PREAMBLE[..5]);
    rig.read_socket = unix_pair().0;
    // What came before it first; then the socket is still readable.
    assert_eq!(rig.progress_serve(), Progress::Blocked);
    assert_eq!(rig.progress_serve(), Progress::Closed("the consumer closed the stream".into()));
}

/// A consumer that asks and does not read makes the producer stop listening to it, and costs no
/// more than that.
#[test]
fn past_the_pipeline_nothing_more_is_read_until_something_is_answered() {
    let mut rig = Rig::new(30_000, unix_pair());
    let bytes = bytes_for_test(1_500_000, 1);
    let token = rig.source.grant(&bytes);
    send(&rig, &[PREAMBLE, &read_frame(0, token.0)].concat());
    rig.progress_serve();
    assert!(rig.serve.serving().is_some(), "the buffer is full of the first answer");
    let flood: Vec<u8> = (1..1000).flat_map(|id| read_frame(id, [0; 16])).collect();
    send(&rig, &flood);
    rig.progress_serve();
    assert!(!rig.serve.wants_read() && rig.serve.wants_write());
    let left = rustix::io::ioctl_fionread(&rig.serve_socket).unwrap();
    let requested = 999 * 21 - left;
    let most = (MAX_PIPELINED as u64 + 8) * 21;
    assert!(requested <= most, "{requested} bytes of requests were read, at most {most} are to be");

    // It all comes in the end, in order.
    let mut all = Vec::new();
    let whole = 13 + bytes.len() + 999 * 13;
    while all.len() < whole {
        all.extend(received(&rig));
        assert!(!matches!(rig.progress_serve(), Progress::Closed(_)));
    }
    assert_eq!(all[..13], answer(0x81, 0, 1_500_000));
    assert!(all[13..13 + bytes.len()] == bytes);
    for (id, refused) in (1..1000).zip(all[13 + bytes.len()..].chunks(13)) {
        assert_eq!(refused, answer(0x82, id, 0));
    }
    assert_eq!(rig.source.completed.len(), 1);
}
