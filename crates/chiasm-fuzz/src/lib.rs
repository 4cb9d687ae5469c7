//! Fuzz targets: everything that bytes from outside can reach, and the machines behind it under any
//! series of operations (S7).
//!
//! A target is a function of bytes that panics where a promise is broken. Coverage-guided runs call it
//! by way of `fuzz/`; the tests of this crate call the same function with the committed corpora and with
//! inputs made from a seed. Nothing of the product depends on this crate, and it holds no rule that the
//! product does not have: it only asks for what the product promises.
#![forbid(unsafe_code)]

mod admission;
mod announcement;
mod cache;
mod config;
mod consumer;
mod endpoint;
mod input;
mod json;
mod nixl;
mod producer;
mod region;
mod safetensors;
mod stream;
mod wire;
mod zmtp;

#[path = "../../chiasm-cli/src/store/mod.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "only its reader is wanted"))]
#[expect(
    unused_imports,
    reason = "the command is a program and no library: its reader of stores is taken as source"
)]
mod store;

/// One thing to be fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its program in `fuzz/` and of its corpus.
    pub name: &'static str,
    /// Takes any bytes and panics where a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs that are made from a seed and run in every test.
    pub generated: u32,
    /// Longest of these, in bytes.
    pub longest: usize,
}

const fn target(name: &'static str, run: fn(&[u8]), generated: u32, longest: usize) -> Target {
    Target { name, run, generated, longest }
}

/// All of them. Those that make files are slow and get fewer inputs.
pub const TARGETS: &[Target] = &[
    target("wire_request", wire::request, 20_000, 512),
    target("wire_ack", wire::ack, 20_000, 1024),
    target("wire_done", wire::done, 20_000, 256),
    target("wire_descriptors", wire::descriptors, 20_000, 512),
    target("worker_order", wire::order, 20_000, 512),
    target("zmtp_connection", zmtp::connection, 5_000, 2048),
    target("zmtp_router", zmtp::router, 2_000, 2048),
    target("zmtp_link", zmtp::link, 5_000, 1024),
    target("stream_producer", stream::producer, 2_000, 512),
    target("stream_consumer", stream::consumer, 2_000, 1024),
    target("announcement_text", announcement::text, 20_000, 512),
    target("announcement_json", announcement::value, 20_000, 512),
    target("endpoint", endpoint::endpoint, 20_000, 300),
    target("allowlist", endpoint::allowlist, 5_000, 512),
    target("config", config::config, 5_000, 512),
    target("safetensors", safetensors::file_of_a_store, 5_000, 512),
    target("region_header", region::header, 1_000, 300),
    target("region_rings", region::rings, 500, 4096),
    target("nixl_metadata", nixl::metadata, 10_000, 512),
    target("nixl_messages", nixl::messages, 20_000, 256),
    target("nixl_pieces", nixl::laid_over, 20_000, 300),
    target("cache", cache::cache, 3_000, 512),
    target("producer", producer::producer, 2_000, 1024),
    target("consumer", consumer::consumer, 2_000, 1024),
    target("admission", admission::admission, 2_000, 1024),
];

/// Runs one target. For the programs in `fuzz/`, each of which bears the name of its own.
///
/// # Panics
///
/// If there is no such target, or if a promise is broken.
pub fn run(name: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|target| target.name == name);
    (found.expect("a target of that name").run)(bytes);
}
