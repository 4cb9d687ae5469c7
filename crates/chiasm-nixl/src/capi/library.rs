//! Where NIXL's library is.
//!
//! It must never load anything that was not looked for under NIXL's own name.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;

use super::table::Table;
use crate::settings::Settings;

/// The library's file name.
const NAME: &str = "libnixl_capi.so";

/// Where NVIDIA's own packages put it.
const PACKAGED: &str = "/opt/nvidia/nvda_nixl";

/// NIXL is not there, or cannot be used: where it was looked for, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0)]
pub(crate) struct NotFound(String);

/// The functions of the first library that loads and has them all, and its path.
pub(crate) fn find(settings: &Settings) -> Result<(super::agent::Functions, String), NotFound> {
    let mut tried = Vec::new();
    for candidate in candidates(settings) {
        match load(&candidate) {
            Ok(table) => return Ok((super::agent::Functions(table), shown(&candidate))),
            Err(reason) => tried.push(reason),
        }
    }
    let pythons: Vec<_> = settings.python_prefixes.iter().map(|it| shown(it)).collect();
    let places = match &settings.library {
        Some(library) => format!("at {}, the setting for it", library.display()),
        None if pythons.is_empty() => format!(
            "on the loader's path or below {PACKAGED} (and no Python environment is active, in which \
             it could be)"
        ),
        None => format!(
            "on the loader's path, below {PACKAGED}, or in the Python of {}",
            pythons.join(", ")
        ),
    };
    let mut reason = format!("no usable {NAME} {places}");
    if !tried.is_empty() {
        reason += ": ";
        reason += &tried.join("; ");
    }
    reason += "; `pip install --no-deps nixl-cu12` (or nixl-cu13) brings it";
    Err(NotFound(reason))
}

fn load(path: &Path) -> Result<&'static Table, String> {
    // SAFETY: constructors of NIXL and of what it links run. They are trusted as the operator's choice
    // of library; this process is a helper that has nothing else to lose.
    let library =
        unsafe { Library::new(path) }.map_err(|error| reason(path, &error.to_string()))?;
    let table =
        Table::of(library).map_err(|missing| reason(path, &format!("it lacks {}", missing.0)))?;
    // SAFETY: takes nothing and answers a constant.
    if unsafe { (table.is_stub)() } {
        return Err(reason(path, "it is NIXL's stub, which does nothing"));
    }
    Ok(table)
}

fn reason(path: &Path, what: &str) -> String {
    // The loader's own text often starts with the path.
    let path = shown(path);
    if what.starts_with(&path) { what.to_owned() } else { format!("{path}: {what}") }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// In the order in which they are tried.
fn candidates(settings: &Settings) -> Vec<PathBuf> {
    if let Some(library) = &settings.library {
        return vec![if library.is_dir() { library.join(NAME) } else { library.clone() }];
    }
    let mut candidates = vec![PathBuf::from(NAME)];
    let arch = std::env::consts::ARCH;
    let below = [format!("lib/{arch}-linux-gnu"), "lib64".into(), "lib".into()];
    candidates.extend(existing(below.map(|dir| Path::new(PACKAGED).join(dir).join(NAME))));
    for prefix in &settings.python_prefixes {
        candidates.extend(existing(in_python(prefix)));
    }
    candidates
}

/// `<prefix>/lib*/python3.*/site-packages/.nixl_cu*.mesonpy.libs/`, the newest CUDA first: without a GPU
/// any of them will do.
fn in_python(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        for python in listed(&prefix.join(lib), "python3", "") {
            for libs in listed(&python.join("site-packages"), ".nixl", ".mesonpy.libs") {
                found.push(libs.join(NAME));
            }
        }
    }
    found
}

/// Entries of a directory by prefix and suffix of their names, the highest name first.
fn listed(dir: &Path, prefix: &str, suffix: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let fits = |name: &OsString| {
        name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(suffix))
    };
    let mut names: Vec<_> = names.filter(fits).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    names.into_iter().map(|name| dir.join(name)).collect()
}

fn existing(paths: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    paths.into_iter().filter(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"no library").unwrap();
    }

    #[test]
    fn a_setting_is_the_only_candidate() {
        let dir = tempfile::tempdir().unwrap();
        let library = Some(dir.path().to_owned());
        let python_prefixes = vec![dir.path().to_owned()];
        let settings = Settings { library, python_prefixes, ..Settings::default() };
        assert_eq!(candidates(&settings), [dir.path().join(NAME)]);
        let library = Some(PathBuf::from("/somewhere/else.so"));
        let settings = Settings { library, ..Settings::default() };
        assert_eq!(candidates(&settings), [PathBuf::from("/somewhere/else.so")]);
    }

    #[test]
    fn wheels_are_found_in_each_python_the_newest_cuda_first() {
        let dir = tempfile::tempdir().unwrap();
        let site = dir.path().join("lib/python3.11/site-packages");
        touch(&site.join(".nixl_cu12.mesonpy.libs").join(NAME));
        touch(&site.join(".nixl_cu13.mesonpy.libs").join(NAME));
        fs::create_dir_all(site.join(".other.mesonpy.libs")).unwrap();
        let python_prefixes = vec![dir.path().to_owned()];
        let settings = Settings { python_prefixes, ..Settings::default() };
        let found = candidates(&settings);
        assert_eq!(found.first(), Some(&PathBuf::from(NAME)), "the loader's path comes first");
        let ours: Vec<_> = found.iter().filter(|it| it.starts_with(dir.path())).collect();
        let expected = [".nixl_cu13.mesonpy.libs", ".nixl_cu12.mesonpy.libs"]
            .map(|libs| site.join(libs).join(NAME));
        assert_eq!(ours, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn what_was_looked_for_and_what_to_do_is_in_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        touch(&dir.path().join(NAME));
        let library = Some(dir.path().to_owned());
        let Err(NotFound(reason)) = find(&Settings { library, ..Settings::default() }) else {
            panic!("a text file was loaded");
        };
        assert!(reason.contains(&shown(&dir.path().join(NAME))), "{reason}");
        assert!(
            reason.contains("the setting for it") && reason.contains("pip install"),
            "{reason}"
        );
    }
}
