//! Whole fleets, many seeds.

mod expected;
mod names;
mod repeatable;
mod seeds;
mod shrinking;
