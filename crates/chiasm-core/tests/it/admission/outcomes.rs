//! The outcome table, as data and over the wire.

use std::time::Duration;

use chiasm_core::admission::{Decision, OUTCOMES, Outcome, Signal, Trouble};
use chiasm_core::consumer::{FailureClass, FailureReason};
use chiasm_core::wire::AckStatus;
use rstest::rstest;

use super::producers::Manner;
use super::world::World;

#[test]
fn the_table_says_what_the_specification_says() {
    use Outcome::{Fallback, Retry, Unavailable, Wait};
    let table = [
        (Trouble::Terminal, Fallback, Unavailable),
        (Trouble::Retryable, Retry, Retry),
        (Trouble::ReadWrong, Retry, Retry),
        (Trouble::ReadWrongAgain, Fallback, Unavailable),
        (Trouble::NoRoom, Retry, Retry),
        (Trouble::BreakerOpen, Fallback, Wait),
        (Trouble::BudgetSpent, Fallback, Unavailable),
    ];
    assert_eq!(OUTCOMES, table);
    for (trouble, with_local_input, without) in table {
        assert_eq!(trouble.outcome(true), with_local_input);
        assert_eq!(trouble.outcome(false), without);
    }
}

#[test]
fn every_class_of_failure_has_its_trouble() {
    let of = |class| [false, true].map(|wrong| Trouble::of_failure(class, wrong));
    assert_eq!(of(FailureClass::Terminal), [Trouble::Terminal; 2]);
    assert_eq!(of(FailureClass::Retryable), [Trouble::Retryable; 2]);
    assert_eq!(of(FailureClass::NoRoom), [Trouble::NoRoom; 2]);
    assert_eq!(of(FailureClass::ReadWrong), [Trouble::ReadWrong, Trouble::ReadWrongAgain]);
}

#[rstest]
#[case(FailureReason::NotReady(String::new()), Signal::Answers)]
#[case(FailureReason::NackMissing, Signal::Answers)]
#[case(FailureReason::NoRoom, Signal::Answers)]
#[case(FailureReason::Refused, Signal::Down)]
#[case(FailureReason::AckTimeout, Signal::Down)]
#[case(FailureReason::Lost(String::new()), Signal::Down)]
#[case(FailureReason::Unreachable(String::new()), Signal::Unreachable)]
#[case(FailureReason::Digest, Signal::Misbehaves)]
#[case(FailureReason::BadAgent(String::new()), Signal::Misbehaves)]
#[case(FailureReason::SuspectAgent(String::new()), Signal::Misbehaves)]
#[case(FailureReason::TooManyLinks, Signal::Silent)]
fn what_a_failure_says_about_its_producer(#[case] reason: FailureReason, #[case] signal: Signal) {
    assert_eq!(Signal::of(&reason), signal);
}

/// What a producer does; what becomes of an item with and without local input within two seconds.
#[rstest]
#[case::missing(Manner::Nacks(AckStatus::Missing), "nack_missing", true)]
#[case::incompat(Manner::Nacks(AckStatus::Incompat), "nack_incompat", true)]
#[case::version(Manner::Nacks(AckStatus::Version), "nack_version", true)]
#[case::internal(Manner::Nacks(AckStatus::Internal), "nack_internal", true)]
#[case::wrong_bytes(Manner::WrongBytes, "digest", true)]
#[case::not_ready(Manner::Nacks(AckStatus::NotReady), "budget", false)]
#[case::silent(Manner::Silent, "budget", false)]
#[case::plane(Manner::NoBytes, "budget", false)]
fn the_table_over_the_wire(
    #[case] manner: Manner,
    #[case] word: &str,
    #[case] terminal: bool,
    #[values(false, true)] pixels: bool,
) {
    let resolved = if pixels { Decision::Fallback } else { Decision::Unavailable };
    let mut world = World::new(8);
    world.set("p", manner);
    world.request("a", pixels, &[("h", "p", 3)]);
    let soon = world.run_until_decided("a", Duration::from_millis(100), 20);
    assert_eq!(soon, if terminal { resolved } else { Decision::Wait });
    world.pass(Duration::from_mins(1));
    assert_eq!(world.ensure("a"), resolved);
    assert_eq!(world.verdict("a").1.unwrap().word(), word);
    assert_eq!(world.failed.len(), usize::from(!pixels));
    assert_eq!(world.admission.fell_back("a").count(), usize::from(pixels));
}

/// Several failures in a row that each are worth another attempt.
#[rstest]
#[case::not_ready(Manner::Nacks(AckStatus::NotReady))]
#[case::lost_plane(Manner::NoBytes)]
#[case::refused(Manner::Refuses)]
#[case::wrong_once(Manner::WrongBytes)]
fn what_is_worth_another_attempt_gets_it(#[case] manner: Manner) {
    let mut world = World::new(8);
    world.set("p", manner);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.set("p", Manner::Healthy);
    let decision = world.run_until_decided("a", Duration::from_millis(20), 50);
    assert_eq!(decision, Decision::Ready);
    assert!(world.report("a")[0].attempts >= 2);
}
