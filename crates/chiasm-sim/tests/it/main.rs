//! Whole fleets, many seeds.

mod repeatable;
mod seeds;
mod shrinking;
