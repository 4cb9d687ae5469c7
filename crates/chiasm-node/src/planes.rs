//! Which planes this node can use, and why not the others.

use std::fs;
use std::path::Path;

use chiasm_core::host_hint::HostHint;
use chiasm_core::plane::{Plane, PlaneList};

/// One plane as far as this machine is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneReport {
    /// Which.
    pub plane: Plane,
    /// Whether a node started now would use it.
    pub available: bool,
    /// Why, or why not, in a sentence.
    pub why: String,
    /// What else is worth knowing, by name.
    pub details: Vec<(&'static str, String)>,
}

/// Every plane, for a node whose region would be in `dir`. Nothing is made or kept.
#[must_use]
pub fn report(dir: &Path) -> Vec<PlaneReport> {
    Plane::ALL
        .into_iter()
        .map(|plane| match plane {
            Plane::Shm => shm(dir),
            Plane::Nixl => {
                PlaneReport { plane, available: false, why: NO_NIXL.into(), details: Vec::new() }
            }
            Plane::Tcp => PlaneReport {
                plane,
                available: true,
                why: "data streams go to the port of the control connections".into(),
                details: Vec::new(),
            },
        })
        .collect()
}

const NO_NIXL: &str = "no program is set for its helper processes";

fn shm(dir: &Path) -> PlaneReport {
    let user = rustix::process::geteuid().as_raw();
    let mut details = vec![("directory", dir.display().to_string()), ("user", user.to_string())];
    if let Ok(stat) = rustix::fs::statvfs(dir) {
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        details.push(("free_bytes", free.to_string()));
    }
    details.push(("huge_pages", huge_pages(dir)));
    let (available, why) = match host_hint(dir) {
        Ok(_) => {
            let why = format!(
                "for producers on this host that run as this user and use {}",
                dir.display()
            );
            (true, why)
        }
        Err(why) => (false, why),
    };
    PlaneReport { plane: Plane::Shm, available, why, details }
}

/// The mount's own setting where it has one, else the machine's.
fn huge_pages(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let on = |line: &&str| line.split(' ').nth(4).is_some_and(|mount| dir.starts_with(mount));
    let depth = |line: &&str| line.split(' ').nth(4).map_or(0, str::len);
    let mount = mounts.lines().filter(on).max_by_key(depth);
    let options = mount.and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    if let Some(huge) = options.split(',').find_map(|option| option.strip_prefix("huge=")) {
        return format!("{huge} (of the mount)");
    }
    let all = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let all = all.unwrap_or_default();
    let chosen = all.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or("unknown".into(), |(chosen, _)| format!("{chosen} (shmem_enabled)"))
}

/// Where this node looks for regions, as peers can compare it; or why shm is no use here.
pub(crate) fn host_hint(dir: &Path) -> Result<HostHint, String> {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(|error| format!("the machine's boot id cannot be read: {error}"))?;
    let stat = rustix::fs::stat(dir)
        .map_err(|error| format!("{} cannot be looked at: {error}", dir.display()))?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory {
        return Err(format!("{} is no directory", dir.display()));
    }
    let user = rustix::process::geteuid().as_raw();
    Ok(HostHint::of(boot_id.trim(), (stat.st_dev, stat.st_ino), user))
}

/// Why a node whose region would be in `dir` uses this plane, or does not.
pub(crate) fn why(plane: Plane, dir: &Path) -> String {
    let report = report(dir).into_iter().find(|report| report.plane == plane);
    report.map(|report| report.why).unwrap_or_default()
}

/// Those of the planes asked for that there are, with this node's hint if shm is one of them.
/// `nixl` says whether there is a program for its helper processes; whether NIXL itself is there shows
/// when one of them has been started.
pub(crate) fn usable(asked: PlaneList, dir: &Path, nixl: bool) -> (PlaneList, Option<HostHint>) {
    let mut planes = asked;
    let mut hint = None;
    if asked.contains(Plane::Nixl) && !nixl {
        tracing::warn!("the nixl plane is passed over: no program is set for its helper processes");
        planes = planes.without(Plane::Nixl);
    }
    if asked.contains(Plane::Shm) {
        match host_hint(dir) {
            Ok(here) => hint = Some(here),
            Err(why) => {
                tracing::warn!("the shm plane is passed over: {why}");
                planes = planes.without(Plane::Shm);
            }
        }
    }
    (planes, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_two_hints_and_one_directory_one() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(host_hint(one.path()), host_hint(one.path()));
        assert_ne!(host_hint(one.path()), host_hint(other.path()));
        assert!(host_hint(&one.path().join("nowhere")).unwrap_err().contains("nowhere"));
        assert!(host_hint(Path::new("/proc/self/exe")).unwrap_err().contains("no directory"));
    }

    #[test]
    fn what_cannot_be_used_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let all: PlaneList = Plane::ALL.into_iter().collect();
        let (planes, hint) = usable(all, dir.path(), false);
        assert_eq!(planes.iter().collect::<Vec<_>>(), [Plane::Shm, Plane::Tcp]);
        assert_eq!(hint, host_hint(dir.path()).ok());
        let (planes, hint) = usable(all, &dir.path().join("nowhere"), false);
        assert_eq!((planes.iter().collect::<Vec<_>>(), hint), (vec![Plane::Tcp], None));
        let (planes, hint) = usable(all.without(Plane::Shm), dir.path(), false);
        assert_eq!((planes.iter().collect::<Vec<_>>(), hint), (vec![Plane::Tcp], None));
        assert_eq!(usable(all, dir.path(), true).0, all);
    }

    #[test]
    fn the_report_has_every_plane_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let reports = report(dir.path());
        let available: Vec<_> = reports.iter().map(|it| (it.plane, it.available)).collect();
        assert_eq!(available, [(Plane::Shm, true), (Plane::Nixl, false), (Plane::Tcp, true)]);
        assert!(reports.iter().all(|it| !it.why.is_empty()));
        let nowhere = report(&dir.path().join("nowhere"));
        assert!(!nowhere[0].available && nowhere[0].why.contains("nowhere"));
    }
}
