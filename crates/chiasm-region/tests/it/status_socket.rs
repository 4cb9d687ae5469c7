//! The status socket beside a region dies with it, and only with it.

use std::fs;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;

use chiasm_region::{Region, reclaim_stale, region_of_status_socket, status_socket, wake_socket};

use crate::child::Child;
use crate::support::{NAME, no_spawns, options_for_test, region_for_test};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a killed node leaves: its region, and a socket on which nobody listens.
fn killed(dir: &Path) {
    Child::run("hold", dir).kill();
    drop(UnixListener::bind(status_socket(&dir.join(NAME))).unwrap());
    assert_eq!(names(dir), [NAME.to_owned(), format!("{NAME}.status")]);
}

#[test]
fn a_dead_region_takes_its_socket_along() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let _alone = no_spawns();
    assert_eq!(reclaim_stale(dir.path()).unwrap(), [dir.path().join(NAME)]);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn whoever_takes_the_name_again_finds_no_socket_there() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path());
    let _alone = no_spawns();
    let region = Region::create(&options_for_test(dir.path())).unwrap();
    assert_eq!(names(dir.path()), [NAME]);
    drop(region);
}

#[test]
fn the_socket_of_a_live_region_stays() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let _socket = UnixListener::bind(status_socket(region.path())).unwrap();
    assert!(reclaim_stale(dir.path()).unwrap().is_empty());
    assert!(Region::create(&options_for_test(dir.path())).is_err());
    assert!(status_socket(region.path()).exists());
}

#[test]
fn what_is_no_socket_is_nobodys_left_over() {
    for make in [
        |path: &Path| fs::write(path, "notes").unwrap(),
        |path: &Path| std::os::unix::fs::symlink("/dev/null", path).unwrap(),
        |path: &Path| fs::create_dir(path).unwrap(),
    ] {
        let dir = tempfile::tempdir().unwrap();
        Child::run("hold", dir.path()).kill();
        make(&status_socket(&dir.path().join(NAME)));
        let _alone = no_spawns();
        assert_eq!(reclaim_stale(dir.path()).unwrap().len(), 1);
        assert_eq!(names(dir.path()), [format!("{NAME}.status")]);
    }
}

#[test]
fn sockets_whose_region_is_gone_go_when_nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join(NAME);
    let (status, wake) = (status_socket(&region), wake_socket(&region));
    let _alone = no_spawns();
    let listening = (UnixListener::bind(&status).unwrap(), UnixDatagram::bind(&wake).unwrap());
    assert!(reclaim_stale(dir.path()).unwrap().is_empty(), "somebody listens");
    drop(listening);
    assert_eq!(reclaim_stale(dir.path()).unwrap(), [status, wake]);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn sockets_beside_a_region_and_those_of_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let _alone = no_spawns();
    let others = [
        wake_socket(region.path()),
        dir.path().join("other.status"),
        dir.path().join("chiasm-gone.other"),
        dir.path().join("chiasm-.wake"),
    ];
    for path in &others {
        drop(UnixDatagram::bind(path).unwrap());
    }
    assert!(reclaim_stale(dir.path()).unwrap().is_empty());
    assert!(others.iter().all(|path| path.exists()));
}

#[test]
fn a_socket_and_its_region_lead_to_each_other() {
    let region = Path::new("/dev/shm/chiasm-0a");
    assert_eq!(status_socket(region), Path::new("/dev/shm/chiasm-0a.status"));
    assert_eq!(region_of_status_socket(&status_socket(region)).as_deref(), Some(region));
    for path in ["/dev/shm/chiasm-0a", "/dev/shm/x.status", "/dev/shm/chiasm-.status", "/"] {
        assert_eq!(region_of_status_socket(Path::new(path)), None, "{path}");
    }
}
