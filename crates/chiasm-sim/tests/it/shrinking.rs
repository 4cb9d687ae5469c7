//! A failing run is made shorter, and says how to replay it.

use chiasm_sim::Run;
use chiasm_sim::setup::Setup;
use chiasm_sim::shrink::shrink;
use chiasm_sim::violation::Promise;

/// Engines so slow that nothing can be admitted in time: broken on purpose, with faults and a plan that
/// have nothing to do with it.
fn broken() -> Run {
    let mut setup = Setup::of_seed(3);
    setup.step = (100_000_000_000, 200_000_000_000);
    Run::of(setup)
}

#[test]
fn what_does_not_matter_is_left_out_and_the_rest_still_fails() {
    let whole = broken().outcome();
    let violation = whole.violation.expect("it fails");
    assert_eq!(violation.promise, Promise::Liveness);
    let shrunk = shrink(&broken()).expect("it fails");
    assert_eq!(shrunk.run.keep, Some(Vec::new()), "the plan has nothing to do with it");
    assert!(shrunk.outcome.events < whole.events);
    let again = shrunk.run.outcome();
    assert_eq!(again.hash, shrunk.outcome.hash);
    assert_eq!(again.violation.map(|violation| violation.promise), Some(Promise::Liveness));
}

#[test]
fn it_names_promise_seed_commit_and_command() {
    let text = shrink(&broken()).expect("it fails").describe("abc123");
    for part in ["liveness broken at", "seed 3, commit abc123", "chiasm sim replay 3 --keep none"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn a_run_that_does_not_fail_is_not_shrunk() {
    assert!(shrink(&Run::of_seed(3)).is_none());
}
