//! What fuzzing has found is run again by every test, and so is a sample of what it would look at.

mod corpus;
mod generated;
mod manifest;
