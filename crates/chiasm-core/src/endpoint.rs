//! Canonical `host:port` of a control socket.
