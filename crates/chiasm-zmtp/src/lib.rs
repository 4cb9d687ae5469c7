//! ZMTP 3.1 (NULL mechanism, ROUTER and DEALER) without IO: bytes in, bytes and events out.
