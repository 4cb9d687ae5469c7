//! One node: the thread that owns the clock, the sockets and the planes of an instance.
#![forbid(unsafe_code)]

mod clock;
mod config;
mod dispatch;
mod drain;
mod entry;
mod event_loop;
mod fault;
mod inbound;
mod io_counts;
mod journal;
mod limits;
pub mod metrics;
mod named_socket;
mod news;
mod nixl;
mod node;
mod operator_config;
mod outbound;
pub mod planes;
mod poller;
mod random;
mod resolver;
mod shared;
mod socket;
pub mod status;
mod throttle;
mod token;
mod wake;
mod workers;

pub use config::{ConfigError, NodeConfig};
pub use entry::{Loaded, SaveError, Saving};
pub use fault::{Fault, FaultError};
pub use io_counts::IoCounts;
pub use limits::NodeLimits;
pub use nixl::NixlConfig;
pub use node::{Node, StartError};
