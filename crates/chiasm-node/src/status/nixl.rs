//! The nixl plane in the status: which helper processes there are, and how often they have died.

use serde::Serialize;

use crate::nixl::{ReadHelpers, ServeHelper};

#[derive(Debug, Serialize)]
pub(super) struct Nixl {
    serve: Serve,
    read: Vec<Read>,
    read_deaths: u64,
    read_kills: u64,
}

#[derive(Debug, Serialize)]
struct Serve {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<u32>,
    deaths: u64,
}

#[derive(Debug, Serialize)]
struct Read {
    process: u32,
    peers: usize,
    reads: usize,
}

impl Nixl {
    pub(super) fn of(serve: &ServeHelper, read: &ReadHelpers) -> Self {
        let (read_deaths, read_kills) = read.deaths();
        let read = read.helpers().map(|(process, peers, reads)| Read { process, peers, reads });
        Self {
            serve: Serve {
                state: serve.state().word(),
                agent: serve.agent_name().map(str::to_owned),
                process: serve.process(),
                deaths: serve.deaths(),
            },
            read: read.collect(),
            read_deaths,
            read_kills,
        }
    }
}
