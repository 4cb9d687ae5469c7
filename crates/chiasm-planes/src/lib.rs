//! Planes: ways of moving the bytes of one entry from a producer's region into a consumer's.
//!
//! tcp is here; shm and nixl come to stand beside it. A plane moves bytes that the control protocol
//! has granted and nothing else: it never decides who may read what, and never connects to an
//! address that a peer sent.
#![forbid(unsafe_code)]

pub mod tcp;
