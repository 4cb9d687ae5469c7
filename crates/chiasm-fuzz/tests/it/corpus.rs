//! The committed inputs: each that was ever of interest stays harmless.

use std::fs;
use std::path::{Path, PathBuf};

use chiasm_fuzz::TARGETS;

use crate::generated::Tell;

pub(crate) fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The inputs of one target with their names, in the order of the names.
pub(crate) fn corpus_of(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = fuzz_directory().join("corpus").join(target);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| {
        panic!("{}: {error}: every target has a corpus", directory.display())
    });
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_committed_input_is_harmless() {
    for target in TARGETS {
        let files = corpus_of(target.name);
        assert!(!files.is_empty(), "{} has no inputs", target.name);
        for (name, bytes) in files {
            let _tell = Tell(format!("fuzz/corpus/{}/{name}", target.name), &bytes);
            (target.run)(&bytes);
        }
    }
}

/// They are read by people and kept for ever.
#[test]
fn the_corpora_are_small() {
    let mut all = 0;
    for target in TARGETS {
        for (name, bytes) in corpus_of(target.name) {
            assert!(bytes.len() <= 8 << 10, "{}/{name} has {} bytes", target.name, bytes.len());
            all += bytes.len();
        }
    }
    assert!(all < 1 << 20, "{all} bytes in all");
}
