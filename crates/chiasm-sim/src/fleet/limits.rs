//! What of a fleet's settings can be simulated: enough for any real fleet, and too little to fill a
//! machine's memory.

use std::ops::RangeInclusive;

/// Instances of a kind.
pub const NODES: RangeInclusive<usize> = 1..=256;

/// Different items that requests ask for.
pub const ITEMS: RangeInclusive<usize> = 1..=1_000_000;

/// Items of one request, at most.
pub const ITEMS_PER_REQUEST: RangeInclusive<usize> = 1..=64;

/// Requests that run at once on one consumer.
pub const RUNNING: RangeInclusive<usize> = 1..=10_000;

/// How much more often popular items are asked for.
pub const POPULARITY: RangeInclusive<f64> = 0.0..=10.0;

/// Requests per second, over all consumers.
pub const RATE: RangeInclusive<f64> = 0.001..=1e6;
