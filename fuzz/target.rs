//! The program of every target: it runs the one that bears its name.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| chiasm_fuzz::run(env!("CARGO_BIN_NAME"), bytes));
