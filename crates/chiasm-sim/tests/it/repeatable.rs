//! Same seed, same run (S10).

use chiasm_sim::Run;

#[test]
fn a_seed_gives_the_same_run_byte_for_byte_every_time() {
    for seed in 0..20 {
        let (once, twice) = (Run::of_seed(seed).outcome(), Run::of_seed(seed).outcome());
        assert_eq!(once.hash, twice.hash, "seed {seed}");
        assert_eq!((once.events, once.tally), (twice.events, twice.tally), "seed {seed}");
        assert_eq!(once.stats, twice.stats, "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_run() {
    assert_ne!(Run::of_seed(1).outcome().hash, Run::of_seed(2).outcome().hash);
}

/// Looking at a run does not change it.
#[test]
fn a_run_whose_lines_are_kept_is_the_same_run() {
    let quiet = Run::of_seed(3);
    let watched = Run { keeps_lines: true, ..quiet.clone() };
    let (quiet, watched) = (quiet.outcome(), watched.outcome());
    assert_eq!(quiet.hash, watched.hash);
    assert!(quiet.lines.is_empty() && watched.lines.len() > 1000);
}
