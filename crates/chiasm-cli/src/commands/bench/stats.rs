//! Middle and ends of what was measured.

use std::time::Duration;

/// The value below which `percent` of the durations lie, in milliseconds; 0 of none.
pub(super) fn percentile_ms(durations: &[Duration], percent: usize) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    let at = (last * percent).div_ceil(100);
    sorted.get(at).map_or(0.0, |duration| duration.as_secs_f64() * 1e3)
}

/// The middle one of the values; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// A count as a number to calculate with; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
pub(super) fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_many_and_of_few() {
        let many: Vec<Duration> = (0..=100).rev().map(Duration::from_millis).collect();
        assert!((percentile_ms(&many, 50) - 50.0).abs() < 1e-9);
        assert!((percentile_ms(&many, 99) - 99.0).abs() < 1e-9);
        assert!((percentile_ms(&many, 100) - 100.0).abs() < 1e-9);
        assert!((percentile_ms(&many[..1], 99) - 100.0).abs() < 1e-9);
        assert!(percentile_ms(&[], 50).abs() < 1e-9);
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
    }
}
