//! Stores: what vLLM wrote is read, what we write is what vLLM writes, and bad files are named.

mod reading;
mod writing;

use std::fs;
use std::path::Path;

use chiasm_core::mm_hash::MmHash;

use super::error::{StoreError, StoreProblem};
use super::*;

const NO_LIMIT: u64 = u64::MAX;

fn hash(text: &str) -> MmHash {
    MmHash::new(text).unwrap()
}

fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
