//! What a producer may send to a consumer's end of a stream. Nothing wrong is written into the
//! region, and nothing wrong is taken for landed.

use chiasm_core::consumer::{FailureReason, ReadEnd, TransferId};
use chiasm_core::producer::GrantToken;
use chiasm_planes::tcp::Progress;

use crate::support::{Rig, answer, bytes_for_test, contents, extent, read_frames, unix_pair};

/// Two jobs of 150 bytes are open; the test plays the producer.
fn two_open_jobs() -> Rig {
    let mut rig = Rig::new(10, unix_pair());
    rig.start(0, GrantToken([5; 16]), vec![extent(0, 2)], 150);
    rig.start(1, GrantToken([6; 16]), vec![extent(4, 2)], 150);
    assert_eq!(rig.progress_read(), Progress::Blocked);
    assert_eq!(read_frames(&rig.serve_socket), [(0, [5; 16]), (1, [6; 16])]);
    rig
}

fn say(rig: &mut Rig, bytes: &[u8]) -> Progress {
    assert_eq!(rustix::io::write(&rig.serve_socket, bytes).unwrap(), bytes.len());
    rig.progress_read()
}

fn assert_closed(progress: Progress, why: &str) {
    match progress {
        Progress::Closed(reason) => assert!(reason.contains(why), "{reason}"),
        other => panic!("{other:?}, expected: {why}"),
    }
}

#[test]
fn an_answer_to_another_read_ends_the_stream() {
    for kind in [0x81, 0x82] {
        for id in [1, 2, u32::MAX] {
            let mut rig = two_open_jobs();
            assert_closed(say(&mut rig, &answer(kind, id, 150)), "not the oldest open one (0)");
            assert_eq!(rig.ended, []);
        }
    }
}

#[test]
fn an_answer_of_another_length_is_that_jobs_fault_and_ends_the_stream() {
    for landed in [0, 149, 151, u64::MAX] {
        let mut rig = two_open_jobs();
        let said = format!("{landed} bytes announced on the stream, 150 granted");
        assert_closed(say(&mut rig, &answer(0x81, 0, landed)), &said);
        let length = ReadEnd::Failed(FailureReason::Length { landed, expected: 150 });
        assert_eq!(rig.ended, [(TransferId(0), length)]);
        rig.read.lose(&said);
        let lost = ReadEnd::Failed(FailureReason::Plane(said));
        assert_eq!(rig.read.take_ended(), [(TransferId(1), lost)]);
    }
}

#[test]
fn an_answer_of_another_kind_ends_the_stream() {
    for kind in [0x00, 0x01, 0x80, 0x83, 0xff] {
        let mut rig = two_open_jobs();
        assert_closed(say(&mut rig, &answer(kind, 0, 150)), "kind");
    }
}

#[test]
fn more_bytes_than_asked_for_are_no_answer_and_land_nowhere() {
    let mut rig = two_open_jobs();
    let bytes = bytes_for_test(150, 1);
    let surplus = [answer(0x81, 0, 150), bytes.clone(), vec![0xEE; 50]].concat();
    assert_closed(say(&mut rig, &surplus), "kind 0xee");
    assert_eq!(rig.ended.len(), 1, "the first job's bytes were right");
    let region = contents(&rig.region);
    assert!(region[..150] == bytes && region[150..].iter().all(|byte| *byte == 0));
}

#[test]
fn fewer_bytes_than_announced_are_no_end() {
    let mut rig = two_open_jobs();
    let short = [answer(0x81, 0, 150), vec![1; 149]].concat();
    assert_eq!(say(&mut rig, &short), Progress::Blocked);
    assert_eq!(rig.ended, []);
    rig.serve_socket = unix_pair().0;
    assert_closed(rig.progress_read(), "closed");
    assert_eq!(rig.ended, []);
}

#[test]
fn a_byte_that_answers_nothing_ends_the_stream() {
    let mut rig = Rig::new(10, unix_pair());
    assert_closed(say(&mut rig, b"\x81"), "answer no read");
    let mut rig = two_open_jobs();
    let refusals = [answer(0x82, 0, 0), answer(0x82, 1, 0)].concat();
    assert_eq!(say(&mut rig, &refusals), Progress::Blocked);
    assert_eq!(rig.ended.len(), 2);
    assert_closed(say(&mut rig, b"\0"), "answer no read");
}

#[test]
fn answers_may_come_byte_by_byte() {
    let mut rig = two_open_jobs();
    let (first, second) = (bytes_for_test(150, 1), bytes_for_test(150, 2));
    let all = [answer(0x81, 0, 150), first.clone(), answer(0x81, 1, 150), second.clone()].concat();
    for byte in &all {
        assert_eq!(say(&mut rig, std::slice::from_ref(byte)), Progress::Blocked);
    }
    assert_eq!(rig.ended.len(), 2);
    let region = contents(&rig.region);
    assert!(region[..150] == first && region[400..550] == second);
    assert!(region[150..400].iter().chain(&region[550..]).all(|byte| *byte == 0));
}

#[test]
fn a_read_that_does_not_fit_its_blocks_writes_nothing_outside_them() {
    let mut rig = Rig::new(10, unix_pair());
    rig.start(0, GrantToken([5; 16]), vec![extent(3, 1)], 150);
    rig.progress_read();
    let all = [answer(0x81, 0, 150), vec![7; 150]].concat();
    assert!(matches!(say(&mut rig, &all), Progress::Closed(_)));
    assert!(contents(&rig.region).iter().all(|byte| *byte == 0));
}
