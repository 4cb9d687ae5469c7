//! How the command ends: 0 done, 1 the work failed, 2 the input was wrong.

use std::process::ExitCode;

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

    /// The reason alone, for one that is told as part of another.
    pub(crate) fn into_reason(self) -> anyhow::Error {
        match self {
            Self::Work(reason) | Self::Input(reason) => reason,
            Self::Reported => anyhow::anyhow!("reported already"),
        }
    }

    /// Says the reason on standard error, in one line, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Work(reason) => {
                eprintln!("error: {reason:#}");
                ExitCode::from(1)
            }
            Self::Input(reason) => {
                eprintln!("error: {reason:#}");
                ExitCode::from(2)
            }
            Self::Reported => ExitCode::from(1),
        }
    }
}
