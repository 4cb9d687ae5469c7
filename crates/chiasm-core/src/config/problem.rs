//! What is wrong with a configuration.

use std::fmt;
use std::time::Duration;

use super::key::{Key, Place};
use crate::allowlist::AllowlistProblem;
use crate::endpoint::EndpointProblem;
use crate::excerpt::Excerpt;
use crate::limits::{MAX_ALLOWED_ENDPOINTS, MAX_EXCERPT_CHARS};

/// One thing that must be changed before the instance can start. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key or the variable, under the name that was used; of an unknown one a bounded part.
    pub key: Box<str>,
    /// Which element of a list, counted from 1.
    pub entry: Option<usize>,
    /// What was given, if anything was.
    pub given: Option<Excerpt>,
    /// What is wrong with it.
    pub reason: Reason,
    /// What is allowed; empty where the reason says all.
    pub allowed: String,
}

/// What can be wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The whole is no JSON object.
    #[error("not a JSON object")]
    NoObject,
    /// A setting that must be there is not.
    #[error("missing")]
    Missing,
    /// No setting has this name, and it looks meant for Chiasm.
    #[error("no such key{}", suggestion(*.nearest))]
    Unknown {
        /// The valid one that is closest, if one is close.
        nearest: Option<&'static str>,
    },
    /// A setting in the wrong place.
    #[error("stands in {found}, belongs in {belongs}")]
    Misplaced {
        /// Where it was found.
        found: Place,
        /// Where it belongs.
        belongs: Place,
    },
    /// Two names of one setting say different things.
    #[error("contradicts {other}, which is another name for it")]
    Conflict {
        /// The other name.
        other: &'static str,
    },
    /// Another type, or no value of it.
    #[error("not allowed")]
    Value,
    /// A single value where a list belongs.
    #[error("no list; a single entry stands in brackets too, and each in quotes of its own")]
    NoList,
    /// More entries than an allowlist has endpoints.
    #[error("more than {MAX_ALLOWED_ENDPOINTS} entries")]
    TooManyEntries,
    /// A plane that was named before.
    #[error("named twice")]
    Twice,
    /// Not an entry of an allowlist.
    #[error(transparent)]
    Peer(AllowlistProblem),
    /// Not a host.
    #[error(transparent)]
    Host(EndpointProblem),
    /// A wildcard to bind, given or found.
    #[error(
        "cannot be announced: nobody can connect to it; set VLLM_EC_SIDE_CHANNEL_HOST to the \
         address or name of this host that peers can reach, or to localhost to serve this host alone"
    )]
    Wildcard,
    /// The engine has found no usable address of its host.
    #[error(
        "is what the engine found as this host's address, and nobody can connect to it; set \
         VLLM_EC_SIDE_CHANNEL_HOST to the address or name of this host that peers can reach, or to \
         localhost to serve this host alone"
    )]
    Detected,
    /// The port of this rank does not exist.
    #[error("plus the data-parallel index {data_parallel_index} is more than 65535")]
    PortOverflow {
        /// The index.
        data_parallel_index: u32,
    },
    /// The lease ends before a read may.
    #[error(
        "must be more than read_timeout_s, which is {read_timeout:?}: a lease that ends first makes \
         every slow read void"
    )]
    LeaseTooShort {
        /// The other one.
        read_timeout: Duration,
    },
    /// Blocks would be used again while a late read may write into them.
    #[error(
        "must not be less than read_timeout_s, which is {read_timeout:?}: a late read may write \
         into its blocks until then"
    )]
    QuarantineTooShort {
        /// The other one.
        read_timeout: Duration,
    },
}

impl Problem {
    pub(super) fn new(name: &str, given: Option<Excerpt>, reason: Reason) -> Self {
        Self { key: bounded(name), entry: None, given, reason, allowed: String::new() }
    }

    pub(super) fn of(key: &Key, name: &str, fault: Fault) -> Self {
        let allowed = format!("{}, for example {}", key.allowed(), key.example);
        let Fault { entry, given, reason } = fault;
        Self { entry, allowed, ..Self::new(name, given, reason) }
    }

    /// The valid key that is closest to an unknown one, if one is close.
    #[must_use]
    pub const fn nearest(&self) -> Option<&'static str> {
        match self.reason {
            Reason::Unknown { nearest } => nearest,
            _ => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(entry) = self.entry {
            write!(f, ", entry {entry}")?;
        }
        if let Some(given) = &self.given {
            write!(f, ", {given}")?;
        }
        write!(f, ": {}", self.reason)?;
        if !self.allowed.is_empty() {
            write!(f, "; allowed: {}", self.allowed)?;
        }
        Ok(())
    }
}

/// What is wrong with a value, before it is known under which name it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) entry: Option<usize>,
    pub(super) given: Option<Excerpt>,
    pub(super) reason: Reason,
}

impl Fault {
    pub(super) fn new(given: Excerpt, reason: Reason) -> Self {
        Self { entry: None, given: Some(given), reason }
    }
}

fn suggestion(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(
        || "; `chiasm config reference` lists the valid ones".into(),
        |nearest| format!("; did you mean {nearest}?"),
    )
}

/// A name that somebody else has chosen: as it is if it is harmless, else an excerpt.
pub(super) fn bounded(name: &str) -> Box<str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let harmless = name.len() <= MAX_EXCERPT_CHARS && !name.is_empty() && name.bytes().all(plain);
    if harmless { name.into() } else { Excerpt::of(name).to_string().into() }
}
