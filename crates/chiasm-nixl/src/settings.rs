//! What an operator can say about NIXL.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which of NIXL's backends moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// UCX: RDMA (InfiniBand, RoCE), else shared memory and tcp. What upstream uses.
    #[default]
    Ucx,
    /// libfabric: Elastic Fabric Adapters.
    Libfabric,
}

impl Backend {
    /// Every name, for messages that say what is allowed.
    pub const NAMES: &str = "UCX, LIBFABRIC";

    /// NIXL's name of the plug-in.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ucx => "UCX",
            Self::Libfabric => "LIBFABRIC",
        }
    }

    /// The backend with this name, in whatever case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ucx, Self::Libfabric].into_iter().find(|it| it.name().eq_ignore_ascii_case(name))
    }
}

/// Where NIXL is and how it is to be used. The default finds it by itself and leaves the interfaces to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `libnixl_capi.so`, or a directory that has it. Nothing else is tried then.
    pub library: Option<PathBuf>,
    /// Prefixes of the Pythons whose `site-packages` are looked into, in this order: `sys.prefix` where a
    /// Python runs, `VIRTUAL_ENV` where one is active.
    pub python_prefixes: Vec<PathBuf>,
    /// The backend.
    pub backend: Backend,
    /// Interfaces that UCX may use, as its `UCX_NET_DEVICES` (`mlx5_0:1,eth0`). By default all of them,
    /// and it listens on each.
    pub interfaces: Option<String>,
    /// First and last tcp port that UCX may listen on. By default any.
    pub ports: Option<(u16, u16)>,
}

impl Settings {
    /// The environment that a helper is started with, besides what its program needs.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment: Vec<(&'static str, String)> = vec![
            // No GPU: a helper moves host memory, and a driver's context costs memory and time.
            ("CUDA_VISIBLE_DEVICES", String::new()),
            // Bounded: by default UCX keeps every registration that it has ever seen.
            ("UCX_RCACHE_MAX_UNRELEASED", "1024".into()),
            // No hooks into the allocator: the one mapping here is never unmapped. Starts in 62 to 81 ms
            // instead of 490.
            ("UCX_MEM_EVENTS", "n".into()),
            // Errors are events; a crash is the helper's exit status.
            ("UCX_HANDLE_ERRORS", "none".into()),
            ("UCX_LOG_LEVEL", "error".into()),
            ("NIXL_LOG_LEVEL", "ERROR".into()),
        ];
        if let Some(interfaces) = &self.interfaces {
            environment.push(("UCX_NET_DEVICES", interfaces.clone()));
        }
        if let Some((first, last)) = self.ports {
            environment.push(("UCX_TCP_PORT_RANGE", format!("{first}-{last}")));
        }
        environment
    }
}
