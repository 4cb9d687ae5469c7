//! The control messages, byte for byte as upstream speaks them.
