//! Inputs that are made from a seed: out of the committed ones by small changes, and out of nothing.
//!
//! `CHIASM_FUZZ_SEED` makes others; a failure names the seed and shows the input.

use std::sync::Mutex;

use chiasm_fuzz::{TARGETS, Target};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng as _, SeedableRng as _};

use crate::corpus::corpus_of;

/// Says which input it was if the test panics before this is dropped.
pub(crate) struct Tell<'a>(pub(crate) String, pub(crate) &'a [u8]);

impl Drop for Tell<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(what, bytes) = self;
            let hex = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            eprintln!("the input was {what}: {hex}");
        }
    }
}

fn seed() -> u64 {
    std::env::var("CHIASM_FUZZ_SEED").map_or(20, |text| text.parse().expect("a number"))
}

fn below(rng: &mut ChaCha12Rng, end: usize) -> usize {
    usize::try_from(rng.next_u64() % end.max(1) as u64).expect("below a usize")
}

fn byte(rng: &mut ChaCha12Rng) -> u8 {
    rng.next_u32().to_le_bytes()[0]
}

/// A committed input with a few changes, or new bytes.
fn input(rng: &mut ChaCha12Rng, corpus: &[(String, Vec<u8>)], longest: usize) -> Vec<u8> {
    if corpus.is_empty() || below(rng, 4) == 0 {
        let length = below(rng, longest + 1);
        return (0..length).map(|_| byte(rng)).collect();
    }
    let mut bytes = corpus[below(rng, corpus.len())].1.clone();
    for _ in 0..=below(rng, 8) {
        let place = below(rng, bytes.len());
        match below(rng, 6) {
            0 | 1 if !bytes.is_empty() => bytes[place] = byte(rng),
            2 if !bytes.is_empty() => bytes[place] ^= 1 << below(rng, 8),
            3 if !bytes.is_empty() => drop(bytes.remove(place)),
            4 => bytes.insert(place, byte(rng)),
            5 => {
                let other = &corpus[below(rng, corpus.len())].1;
                let cut = below(rng, other.len() + 1);
                bytes.truncate(place);
                bytes.extend(&other[cut..]);
            }
            _ => {}
        }
    }
    bytes.truncate(8 << 10);
    bytes
}

fn run(target: &Target) {
    let corpus = corpus_of(target.name);
    let seed = seed();
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    for number in 0..target.generated {
        let bytes = input(&mut rng, &corpus, target.longest);
        let what = format!("{}: number {number} of seed {seed}", target.name);
        let _tell = Tell(what, &bytes);
        (target.run)(&bytes);
    }
}

/// In two threads, since one takes as long as it takes. The first input that breaks a target is shown,
/// and the others go on.
#[test]
fn inputs_made_from_a_seed_are_harmless() {
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        let (left, right) = TARGETS.split_at(TARGETS.len() / 2);
        for half in [left, right] {
            let broken = &broken;
            threads.spawn(move || {
                for target in half {
                    if std::panic::catch_unwind(|| run(target)).is_err() {
                        broken.lock().unwrap().push(target.name);
                    }
                }
            });
        }
    });
    assert_eq!(broken.into_inner().unwrap(), [""; 0]);
}

/// The same seed gives the same inputs, on every machine.
#[test]
fn the_same_seed_gives_the_same_inputs() {
    let corpus = [("one".to_owned(), vec![1, 2, 3])];
    let made = |seed| {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        (0..50).map(|_| input(&mut rng, &corpus, 20)).collect::<Vec<_>>()
    };
    assert_eq!(made(1), made(1));
    assert_ne!(made(1), made(2));
}
