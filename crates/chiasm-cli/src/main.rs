//! The `chiasm` command.
fn main() {}
