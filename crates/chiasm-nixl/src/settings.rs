//! What an operator can say about NIXL.

use std::path::PathBuf;

use chiasm_core::config::{NixlBackend, NixlConfig};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where NIXL is and how it is to be used. The default finds it by itself and leaves the interfaces to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `libnixl_capi.so`, or a directory that has it. Nothing else is tried then.
    pub library: Option<PathBuf>,
    /// Prefixes of the Pythons whose `site-packages` are looked into, in this order: `sys.prefix` where a
    /// Python runs, `VIRTUAL_ENV` where one is active.
    pub python_prefixes: Vec<PathBuf>,
    /// The backend.
    #[serde(serialize_with = "as_name", deserialize_with = "from_name")]
    pub backend: NixlBackend,
    /// Interfaces that UCX may use, as its `UCX_NET_DEVICES` (`mlx5_0:1,eth0`). By default all of them,
    /// and it listens on each.
    pub interfaces: Option<String>,
    /// First and last tcp port that UCX may listen on. By default any.
    pub ports: Option<(u16, u16)>,
}

impl From<&NixlConfig> for Settings {
    /// What an operator has set. `python_prefixes` is for the caller to fill: the configuration does not
    /// know which Python runs.
    fn from(config: &NixlConfig) -> Self {
        Self {
            library: config.library.value.as_deref().map(PathBuf::from),
            python_prefixes: Vec::new(),
            backend: config.backend.value,
            interfaces: config.interfaces.value.as_ref().map(ToString::to_string),
            ports: config.ports.value.map(|ports| (ports.first(), ports.last())),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn as_name<S: Serializer>(backend: &NixlBackend, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(backend.name())
}

fn from_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NixlBackend, D::Error> {
    let name = String::deserialize(deserializer)?;
    NixlBackend::from_name(&name).ok_or_else(|| D::Error::custom("no backend of NIXL's"))
}

impl Settings {
    /// Variables that a helper has unless the operator has set them otherwise.
    pub(crate) fn defaults() -> [(&'static str, &'static str); 5] {
        [
            // Bounded: by default UCX keeps every registration that it has ever seen.
            ("UCX_RCACHE_MAX_UNRELEASED", "1024"),
            // No hooks into the allocator: the one mapping here is never unmapped. Starts in 62 to 81 ms
            // instead of 490.
            ("UCX_MEM_EVENTS", "n"),
            // A crash is the helper's exit status; nobody would read the trace.
            ("UCX_HANDLE_ERRORS", "none"),
            ("UCX_LOG_LEVEL", "error"),
            ("NIXL_LOG_LEVEL", "ERROR"),
        ]
    }

    /// Variables that a helper has whatever else is set.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        // No GPU: a helper moves host memory, and a driver's context costs memory and time.
        let mut environment = vec![("CUDA_VISIBLE_DEVICES", String::new())];
        if let Some(interfaces) = &self.interfaces {
            environment.push(("UCX_NET_DEVICES", interfaces.clone()));
        }
        if let Some((first, last)) = self.ports {
            environment.push(("UCX_TCP_PORT_RANGE", format!("{first}-{last}")));
        }
        environment
    }
}
