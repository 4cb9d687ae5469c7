//! How the command ends: 0 done, 1 the work failed, 2 the input was wrong.

use std::io::Write as _;
use std::process::ExitCode;

use chiasm_node::StartError;
use chiasm_region::RegionError;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input was right and the work failed: exit code 1.
    Work(anyhow::Error),
    /// The input was wrong (arguments, files, values in them): exit code 2.
    Input(anyhow::Error),
    /// As [`Failure::Work`], when everything has been said on the outputs already.
    Reported,
}

impl Failure {
    /// The input was wrong, for this reason.
    pub(crate) fn input(reason: impl Into<anyhow::Error>) -> Self {
        Self::Input(reason.into())
    }

    /// The work failed, for this reason.
    pub(crate) fn work(reason: impl Into<anyhow::Error>) -> Self {
        Self::Work(reason.into())
    }

    /// Says the reason on standard error and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Work(reason) => {
                say(format_args!("error: {reason:#}"));
                ExitCode::from(1)
            }
            Self::Input(reason) => {
                say(format_args!("error: {reason:#}"));
                ExitCode::from(2)
            }
            Self::Reported => ExitCode::from(1),
        }
    }
}

/// Values that cannot work, a busy port or a bad host are the input's fault; anything else is the
/// machine's.
impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Config(_) | StartError::Unresolved { .. } | StartError::Bind { .. } => {
                Self::input(error)
            }
            // Their remedy names the plug-in's key for the size.
            StartError::Region(
                error @ (RegionError::NoSpace { .. } | RegionError::Populate { .. }),
            ) => Self::work(anyhow::anyhow!("{error} (ec_cpu_bytes is --region here)")),
            StartError::Region(_) | StartError::NoPlane { .. } | StartError::System(_) => {
                Self::work(error)
            }
        }
    }
}

/// Writes one line on standard error. That nobody reads it any more is no reason to fail, and none
/// to panic, as `eprintln!` does.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
