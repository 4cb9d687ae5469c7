//! Planes: ways of moving the bytes of one entry from a producer's region into a consumer's.
//!
//! tcp and shm are here; nixl comes to stand beside them. A plane moves bytes that the control protocol
//! has granted and nothing else: it never decides who may read what, and never connects to an
//! address that a peer sent.
#![forbid(unsafe_code)]

pub mod shm;
pub mod tcp;
