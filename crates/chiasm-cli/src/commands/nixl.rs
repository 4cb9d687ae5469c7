//! The flags that say how NIXL is used.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_nixl::{Launch, MAX_AGENT_NAME_BYTES, Settings};
use chiasm_node::NixlConfig;
use clap::Args;

/// What NIXL needs to know. Without any of these flags it is looked for where it usually is, and may use
/// every interface.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "NIXL (with nixl among the planes)")]
pub(crate) struct NixlArguments {
    /// libnixl_capi.so, or the directory that has it. Default: the loader's path, /opt/nvidia/nvda_nixl,
    /// and the packages of the active Python environment (VIRTUAL_ENV).
    #[arg(long = "nixl-library", value_name = "PATH")]
    library: Option<PathBuf>,

    /// Interfaces that UCX may use (UCX_NET_DEVICES), for example mlx5_0:1,eth0. Default: all.
    #[arg(long = "nixl-interfaces", value_name = "LIST")]
    interfaces: Option<String>,

    /// Ports that UCX may listen on, for example 41000-41999. Default: any.
    #[arg(long = "nixl-ports", value_name = "FIRST-LAST")]
    ports: Option<String>,

    /// Name of this node's NIXL agent: different for any two producers that one consumer reads
    /// from. Default: chiasm-, and the process's number.
    #[arg(long = "nixl-agent", value_name = "NAME")]
    agent: Option<String>,
}

impl NixlArguments {
    /// How NIXL is used, if it is among `planes`.
    pub(crate) fn config(&self, planes: PlaneList) -> anyhow::Result<Option<NixlConfig>> {
        if !planes.contains(Plane::Nixl) {
            return Ok(None);
        }
        let launch = Launch::this_program().context("this program's own path is not known")?;
        let settings = Settings {
            library: self.library.clone(),
            // A helper does not see this program's environment.
            python_prefixes: std::env::var_os("VIRTUAL_ENV")
                .map(PathBuf::from)
                .into_iter()
                .collect(),
            interfaces: self.interfaces.clone(),
            ports: self.ports.as_deref().map(ports).transpose()?,
            ..Settings::default()
        };
        let agent_name = match &self.agent {
            Some(name) => {
                let good = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
                ensure!(good, "--nixl-agent {name:?} is empty or not printable ASCII");
                let bytes = name.len();
                ensure!(
                    bytes <= MAX_AGENT_NAME_BYTES,
                    "--nixl-agent has {bytes} bytes, {MAX_AGENT_NAME_BYTES} may be"
                );
                name.clone()
            }
            None => format!("chiasm-{}", std::process::id()),
        };
        Ok(Some(NixlConfig { launch, settings, agent_name }))
    }

    /// The flags as they were given, for other processes of this program: all but the name of the agent,
    /// which is for one process alone.
    pub(crate) fn flags_of_all(&self) -> Vec<String> {
        let library = self.library.as_ref().map(|path| path.display().to_string());
        [
            ("--nixl-library", library),
            ("--nixl-interfaces", self.interfaces.clone()),
            ("--nixl-ports", self.ports.clone()),
        ]
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]))
        .flatten()
        .collect()
    }
}

fn ports(text: &str) -> anyhow::Result<(u16, u16)> {
    let range = || {
        let (first, last) = text.split_once('-')?;
        let range: (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (0 < range.0 && range.0 <= range.1).then_some(range)
    };
    range().with_context(|| format!("--nixl-ports {text:?} is not like 41000-41999"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_is_two_numbers_in_order() {
        assert_eq!(ports("1-65535").unwrap(), (1, 65535));
        assert_eq!(ports("7-7").unwrap(), (7, 7));
        for bad in ["", "7", "0-7", "8-7", "7-65536", "7-", "-7", "7-8-9", "a-b"] {
            assert!(ports(bad).unwrap_err().to_string().contains("41000-41999"), "{bad}");
        }
    }
}
