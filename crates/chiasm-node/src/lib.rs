//! One node: the thread that owns the clock, the sockets and the planes.
