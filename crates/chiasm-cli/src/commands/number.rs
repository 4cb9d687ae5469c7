//! Numbers as they are given on the command line.
//!
//! Whoever gives something else is told what is allowed; what was given the parser of arguments says.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Takes whole numbers of this range.
pub(super) fn whole<T>(allowed: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| within(text, "a whole number", &allowed)
}

/// Takes numbers of this range, fractions among them.
pub(super) fn number(allowed: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| within(text, "a number", &allowed)
}

fn within<T>(text: &str, kind: &str, allowed: &RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| format!("allowed is {kind} from {} to {}", allowed.start(), allowed.end()))
}

/// A time in seconds, fractions allowed.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "allowed is a number of seconds, 0 or more, for example 2.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_of_the_range_is_told_the_range() {
        assert_eq!(whole(1_usize..=256)("256"), Ok(256));
        assert_eq!(number(0.0..=10.0)("0.8"), Ok(0.8));
        for wrong in ["", "-3", "0", "257", "x", "1.5", "1e1", "99999999999999999999999"] {
            let told = whole(1_usize..=256)(wrong).unwrap_err();
            assert_eq!(told, "allowed is a whole number from 1 to 256", "{wrong}");
        }
        for wrong in ["", "-0.1", "x", "nan", "inf", "11"] {
            let told = number(0.0..=10.0)(wrong).unwrap_err();
            assert_eq!(told, "allowed is a number from 0 to 10", "{wrong}");
        }
    }

    #[test]
    fn a_time_is_a_number_of_seconds() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "-1", "x", "nan", "inf", "1e300"] {
            assert!(seconds(wrong).unwrap_err().contains("0 or more"), "{wrong}");
        }
    }
}
