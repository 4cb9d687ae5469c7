//! How a helper process is started: a program whose `main` is [`helper_main`](crate::helper_main).

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

/// A command line that runs [`helper_main`](crate::helper_main): `chiasm nixl-helper`, or
/// `python -m chiasm._nixl_helper`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Environment variables that the program itself needs (`PYTHONPATH`, `LD_LIBRARY_PATH`). A helper
    /// gets these, a few of NIXL's own, and nothing else of the node's environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// The first argument by which a program of Chiasm's is told to be a helper.
pub const HELPER_ARGUMENT: &str = "nixl-helper";

impl Launch {
    /// This very program, with [`HELPER_ARGUMENT`].
    pub fn this_program() -> io::Result<Self> {
        Ok(Self::new(std::env::current_exe()?, [HELPER_ARGUMENT]))
    }

    /// The interpreter at `executable` (`sys.executable`), as `python -m chiasm._nixl_helper`.
    pub fn python(executable: impl Into<PathBuf>) -> Self {
        // Not from the working directory: only what is installed, or on PYTHONPATH.
        Self::new(executable, ["-P", "-m", "chiasm._nixl_helper"])
    }

    /// A program and its arguments, with what a program needs of this process's environment
    /// (`LD_LIBRARY_PATH`, `PYTHONPATH`, `PYTHONHOME`, `PATH`, `HOME`, `LANG`) and what an operator tunes
    /// the transports by (`UCX_*`, `FI_*`, `NIXL_PLUGIN_DIR`, `NIXL_LOG_LEVEL`).
    pub fn new(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        let environment = std::env::vars_os().filter(|(name, _)| is_passed_on(name)).collect();
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { program: program.into(), arguments, environment }
    }
}

fn is_passed_on(name: &OsStr) -> bool {
    const NAMES: [&str; 8] = [
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "PYTHONHOME",
        "PATH",
        "HOME",
        "LANG",
        "NIXL_PLUGIN_DIR",
        "NIXL_LOG_LEVEL",
    ];
    name.to_str().is_some_and(|name| {
        NAMES.contains(&name) || name.starts_with("UCX_") || name.starts_with("FI_")
    })
}
