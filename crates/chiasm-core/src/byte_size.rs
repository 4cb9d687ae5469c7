//! Sizes as people write them: `4GiB`, `512MiB`, `1073741824`.

use std::fmt;

use crate::excerpt::Excerpt;

/// A number of bytes. Its text form is the largest binary unit that divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Units in any case. `K`, `M` and `G` alone are refused: half of the world means 1000 by them.
const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ByteSizeError {
    /// Not digits and a unit.
    #[error(
        "{given} is no size: allowed is a whole number, alone or with one of the units KiB, MiB, \
         GiB, TiB (1024) or kB, MB, GB, TB (1000), for example 4GiB"
    )]
    Form {
        /// The text.
        given: Excerpt,
    },
    /// More than 64 bits.
    #[error("{given} is more than 16 EiB")]
    Overflow {
        /// The text.
        given: Excerpt,
    },
}

impl ByteSize {
    /// Reads a whole number with or without a unit.
    pub fn parse(text: &str) -> Result<Self, ByteSizeError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.strip_prefix(' ').unwrap_or(unit).to_ascii_lowercase();
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let Some(factor) = factor.filter(|_| !number.is_empty()) else {
            return Err(ByteSizeError::Form { given: Excerpt::of(text) });
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        bytes.map(Self).ok_or_else(|| ByteSizeError::Overflow { given: Excerpt::of(text) })
    }
}

impl std::str::FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        Self::parse(text)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let exact = units.into_iter().find(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit));
        match exact {
            Some((name, unit)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4GiB", 4 << 30),
            ("4 gib", 4 << 30),
            ("10MB", 10_000_000),
            ("7b", 7),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(ByteSize::parse(text), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_is_allowed() {
        for text in ["", "GiB", "4G", "-1", "+1", "1.5GiB", "1e9", "4  GiB", "4GiB ", "0x10", "٤"]
        {
            let error = ByteSize::parse(text).unwrap_err();
            assert!(matches!(error, ByteSizeError::Form { .. }), "{text}: {error}");
            assert!(error.to_string().contains("GiB"));
        }
        let error = ByteSize::parse("99999999999TiB").unwrap_err();
        assert!(matches!(error, ByteSizeError::Overflow { .. }));
        let error = ByteSize::parse("99999999999999999999").unwrap_err();
        assert!(matches!(error, ByteSizeError::Overflow { .. }));
    }

    #[test]
    fn a_shown_size_is_read_back_as_itself() {
        for bytes in [0, 1, 1023, 1024, 1536, 1 << 20, 3 << 30, (1 << 40) + 1, u64::MAX] {
            let shown = ByteSize(bytes).to_string();
            assert_eq!(ByteSize::parse(&shown), Ok(ByteSize(bytes)), "{shown}");
        }
    }
}
