//! Non-blocking TCP sockets: bind, accept, connect, and how their failures are told.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use chiasm_core::consumer::FailureReason;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, getsockname, ipproto,
    listen, socket_with, sockopt,
};

/// Connections that may wait to be accepted. The system cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Binds and listens. Port 0 is chosen by the system on this very socket; the address that is bound
/// comes back.
pub(crate) fn listen_on(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = stream_socket(address)?;
    // A restart on the same port must not wait for old connections' TIME_WAIT. On Linux this does
    // not let two sockets listen on one port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let bound = getsockname(&socket)?;
    let bound =
        SocketAddr::try_from(bound).map_err(|_| io::Error::other("bound to no IP address"))?;
    Ok((socket, bound))
}

/// The next waiting connection; `None` if there is none.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(socket) => {
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            Ok(Some(socket))
        }
        // The connection was gone before it was accepted: look for the next one later.
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Starts to connect; the socket becomes writable when that is decided.
pub(crate) fn start_connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = stream_socket(address)?;
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// How a connect that [`start_connect`] began has ended.
pub(crate) fn finish_connect(socket: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}

/// A failed connect as the consumer is told of it.
pub(crate) fn connect_failure(error: &io::Error) -> FailureReason {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        FailureReason::Refused
    } else {
        FailureReason::Unreachable(error.to_string())
    }
}

fn stream_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}
