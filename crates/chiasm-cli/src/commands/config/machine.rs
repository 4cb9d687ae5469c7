//! What a configuration asks of its machine, and this one does not have.
//!
//! Each finding is a warning and never more: the instance may be meant for another machine. Nothing is
//! made, opened for long or bound; NIXL is tried in a process of its own, and only where it matters.

use std::fs;
use std::path::Path;

use chiasm_core::config::{Config, NixlBackend, Source};
use chiasm_core::plane::Plane;
use chiasm_nixl::Settings;
use chiasm_node::planes::{self, PlaneReport};

use crate::commands::planes::{DIRECTORY, active_python, tell_nixl};
use crate::commands::table::size;

/// Where the system lists its devices by class.
const CLASSES: &str = "/sys/class";

/// Most names of interfaces that a message lists.
const MAX_LISTED: usize = 16;

/// What this machine does not have.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Planes that are required and not there.
    pub(super) absent_planes: Vec<String>,
    /// Everything else.
    pub(super) others: Vec<String>,
}

impl Findings {
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.absent_planes.iter().chain(&self.others)
    }
}

/// Looks at this machine.
pub(super) fn look(config: &Config) -> Findings {
    let mut here = planes::report(Path::new(DIRECTORY));
    let nixl_key = nixl_key(config);
    if nixl_key.is_some() || config.planes.value.required().contains(Plane::Nixl) {
        let mut settings = Settings::from(&config.nixl);
        settings.python_prefixes = active_python();
        tell_nixl(&mut here, &settings);
    }
    let others = unusable_nixl(config, nixl_key, &here)
        .into_iter()
        .chain(missing_interfaces(config, Path::new(CLASSES)))
        .chain(too_little_room(config, &here))
        .collect();
    Findings { absent_planes: absent_planes(config, &here), others }
}

/// What is required of this machine and not there.
fn absent_planes(config: &Config, here: &[PlaneReport]) -> Vec<String> {
    let required = config.planes.value.required();
    let absent = here.iter().filter(|here| !here.available && required.contains(here.plane));
    let sentence = |here: &PlaneReport| {
        let (plane, why) = (here.plane, &here.why);
        format!("ec_planes: {plane} is required, and on this machine it is not there: {why}")
    };
    absent.map(sentence).collect()
}

/// Whether this instance would use NIXL, were it there.
fn uses_nixl(config: &Config) -> bool {
    config.remote.value && config.planes.value.list().contains(Plane::Nixl)
}

/// The key with which the operator has said how NIXL is to be used, if any: then it is meant to be.
fn nixl_key(config: &Config) -> Option<&'static str> {
    let nixl = &config.nixl;
    let sources =
        [nixl.library.source, nixl.backend.source, nixl.interfaces.source, nixl.ports.source];
    let given = sources.into_iter().find(|source| *source != Source::Default);
    given.filter(|_| uses_nixl(config)).and_then(Source::name)
}

/// That NIXL is set up, and cannot be used. Where it is required too, that says it.
fn unusable_nixl(
    config: &Config,
    key: Option<&'static str>,
    here: &[PlaneReport],
) -> Option<String> {
    let key = key.filter(|_| !config.planes.value.required().contains(Plane::Nixl))?;
    let nixl = here.iter().find(|here| here.plane == Plane::Nixl && !here.available)?;
    Some(format!("{key}: on this machine NIXL cannot be used: {}", nixl.why))
}

/// Interfaces that NIXL is to use and that are not there. UCX goes another way then, or none.
fn missing_interfaces(config: &Config, classes: &Path) -> Vec<String> {
    let named = config.nixl.interfaces.value.as_ref();
    let named =
        named.filter(|_| uses_nixl(config) && config.nixl.backend.value == NixlBackend::Ucx);
    let missing =
        named.iter().flat_map(|named| named.iter()).filter(|name| !is_there(name, classes));
    let sentence = |name: &str| {
        format!(
            "ec_nixl_interfaces, \"{name}\": there is no such interface on this machine; there are {}",
            there_are(classes)
        )
    };
    missing.map(sentence).collect()
}

/// UCX names a network interface as the system does, and an RDMA device with its port: `mlx5_0:1`.
fn is_there(name: &str, classes: &Path) -> bool {
    let rdma = classes.join("infiniband");
    match name.split_once(':') {
        Some((device, port)) => rdma.join(device).join("ports").join(port).is_dir(),
        None => {
            name == "all" || classes.join("net").join(name).is_dir() || rdma.join(name).is_dir()
        }
    }
}

fn there_are(classes: &Path) -> String {
    let mut names = listed(&classes.join("net"));
    for device in listed(&classes.join("infiniband")) {
        let ports = listed(&classes.join("infiniband").join(&device).join("ports"));
        names.extend(ports.iter().map(|port| format!("{device}:{port}")));
    }
    let left_out = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    if left_out > 0 {
        names.push(format!("and {left_out} more"));
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// The directories in a directory, in order.
fn listed(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> =
        directories.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// That the region does not fit into what is left for it.
fn too_little_room(config: &Config, here: &[PlaneReport]) -> Option<String> {
    let needed = config.region_bytes.value;
    let details = here.iter().filter(|here| here.plane == Plane::Shm).flat_map(|it| &it.details);
    let mut free = details.filter(|(name, _)| *name == "free_bytes");
    let Some(free) = free.next().and_then(|(_, free)| free.parse::<u64>().ok()) else {
        return Some(format!("ec_cpu_bytes: on this machine {DIRECTORY} cannot be looked at"));
    };
    (free < needed.0).then(|| {
        let free = size(free);
        format!(
            "ec_cpu_bytes, {needed}: {DIRECTORY} on this machine has only {free} left besides what \
             running instances hold; mount it larger (in a container --shm-size or an \
             emptyDir with medium Memory), or make the region smaller"
        )
    })
}

#[cfg(test)]
mod tests {
    use chiasm_core::config::Facts;
    use chiasm_core::plane::Plane::{Nixl, Shm, Tcp};
    use serde_json::{Value, json};

    use super::*;

    fn config(value: &Value) -> Config {
        let host = Some("10.0.0.5");
        let facts = Facts { host_address: host, ..Facts::default() };
        Config::read(value, &|_| None, &facts).unwrap()
    }

    fn report(plane: Plane, available: bool) -> PlaneReport {
        PlaneReport { plane, available, why: "no library".into(), details: Vec::new() }
    }

    #[test]
    fn a_required_plane_that_is_not_here_is_a_warning() {
        let planes = json!(["shm required", "nixl required", "tcp"]);
        let config = config(&json!({"ec_cpu_bytes": 1, "ec_planes": planes}));
        let here = [report(Shm, true), report(Nixl, false), report(Tcp, false)];
        let warnings = absent_planes(&config, &here);
        assert_eq!(warnings.len(), 1, "tcp is not required: {warnings:?}");
        assert!(warnings[0].contains("nixl is required"), "{warnings:?}");
        assert!(warnings[0].ends_with("no library"), "{warnings:?}");
        assert_eq!(unusable_nixl(&config, Some("ec_nixl_ports"), &here), None, "once");
    }

    #[test]
    fn nixl_is_looked_for_only_where_it_is_set_up_and_used() {
        let with = |more: &[(&str, Value)]| {
            let mut value = json!({"ec_cpu_bytes": 1, "ec_remote": true});
            for (key, setting) in more {
                value[key] = setting.clone();
            }
            nixl_key(&config(&value))
        };
        let ports = ("ec_nixl_ports", json!("1-2"));
        assert_eq!(with(&[]), None, "the default list names it, and passes over it");
        assert_eq!(with(std::slice::from_ref(&ports)), Some("ec_nixl_ports"));
        assert_eq!(with(&[ports.clone(), ("ec_remote", json!(false))]), None);
        assert_eq!(with(&[ports, ("ec_planes", json!(["tcp"]))]), None);
    }

    #[test]
    fn interfaces_are_looked_for_among_those_of_the_network_and_of_rdma() {
        let classes = tempfile::tempdir().unwrap();
        for dir in ["net/eth0", "net/lo", "infiniband/mlx5_0/ports/1", "infiniband/mlx5_0/ports/2"]
        {
            fs::create_dir_all(classes.path().join(dir)).unwrap();
        }
        fs::write(classes.path().join("net/bonding_masters"), "").unwrap();
        let missing = |names: Value| {
            let value = json!({"ec_cpu_bytes": 1, "ec_remote": true, "ec_nixl_interfaces": names});
            missing_interfaces(&config(&value), classes.path())
        };
        let there = json!(["lo", "eth0", "mlx5_0", "mlx5_0:2"]);
        assert_eq!(missing(there), [""; 0]);
        assert_eq!(missing(json!(["all"])), [""; 0]);
        let found = missing(json!(["eth0", "eth1", "mlx5_0:3", "bonding_masters"]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("ec_nixl_interfaces, \"eth1\": "), "{found:?}");
        assert!(found[0].ends_with("there are eth0, lo, mlx5_0:1, mlx5_0:2"), "{found:?}");
        assert!(there_are(&classes.path().join("nowhere")).ends_with("none"));
        for at in 0..20 {
            fs::create_dir(classes.path().join(format!("net/veth{at}"))).unwrap();
        }
        assert!(there_are(classes.path()).ends_with("and 8 more"));
    }

    #[test]
    fn a_region_that_does_not_fit_is_a_warning() {
        let free = |bytes: u64| {
            let details = vec![("free_bytes", bytes.to_string())];
            [PlaneReport { details, ..report(Shm, true) }]
        };
        let config = config(&json!({"ec_cpu_bytes": "4GiB"}));
        assert_eq!(too_little_room(&config, &free(4 << 30)), None);
        let told = too_little_room(&config, &free((4 << 30) - 1)).unwrap();
        assert!(told.starts_with("ec_cpu_bytes, 4 GiB: /dev/shm"), "{told}");
        assert!(too_little_room(&config, &[report(Shm, false)]).unwrap().contains("looked at"));
    }
}
