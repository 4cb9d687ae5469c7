//! Planes: ways of moving the bytes of one entry from a producer's region into a consumer's.
