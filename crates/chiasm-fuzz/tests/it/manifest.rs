//! Every target has its program in `fuzz/`, and there is no other.

use std::collections::BTreeSet;
use std::fs;

use chiasm_fuzz::TARGETS;

use crate::corpus::fuzz_directory;

#[test]
fn every_target_has_a_program_and_a_corpus_and_there_is_no_other() {
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names.len(), TARGETS.len(), "a name stands there twice");
    let manifest = fs::read_to_string(fuzz_directory().join("Cargo.toml")).unwrap();
    let programs: BTreeSet<String> = manifest
        .split("[[bin]]")
        .skip(1)
        .filter_map(|section| section.split("name = \"").nth(1)?.split('"').next())
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(programs, names);
    let corpora: BTreeSet<String> = fs::read_dir(fuzz_directory().join("corpus"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(corpora, names);
}
