//! `--metrics`: one thread that answers `GET /metrics` with what a node counts.
//!
//! It must never grow or wait without end, whoever connects: one client at a time, each with little
//! room and little time. It asks nobody who they are: loopback, where only a port is given.

use std::io::{ErrorKind, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use chiasm_node::Node;
use chiasm_node::metrics::{CONTENT_TYPE, MetricsSource};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};

use crate::exit::{Failure, say};

/// Longest request that is read, in bytes.
const MAX_REQUEST_BYTES: usize = 8 << 10;

/// One client, from being accepted to the last byte of its answer.
const DEADLINE: Duration = Duration::from_secs(2);

/// Rest after an error of accepting, such as no descriptors: the client that waits stays there.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Where a command serves its metrics, if it does.
#[derive(Args, Debug)]
pub(crate) struct MetricsArguments {
    /// Serve what the node counts, for Prometheus and others, at http://HOST:PORT/metrics. A port alone
    /// is that port on 127.0.0.1; port 0 is chosen by the system.
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address)]
    metrics: Option<SocketAddr>,
}

fn address(text: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let allowed = "allowed is a port or HOST:PORT, for example 9464 or 10.0.0.5:9464";
    let mut found = text.to_socket_addrs().context(allowed)?;
    found.next().with_context(|| format!("{text:?} has no address"))
}

impl MetricsArguments {
    /// Serves the node's metrics, if that was asked for, until the value is dropped: before the node.
    pub(crate) fn serve(&self, node: &Node) -> Result<Option<MetricsServer>, Failure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let listener = TcpListener::bind(address)
            .map_err(|error| Failure::input(anyhow!("--metrics {address}: {error}")))?;
        let started = MetricsServer::start(listener, node.metrics_source());
        let (server, bound) = started.context("--metrics").map_err(Failure::Work)?;
        say(format_args!("metrics http://{bound}/metrics"));
        Ok(Some(server))
    }
}

/// Ends, and its thread with it, when it is dropped.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    /// Closed, it wakes the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    fn start(listener: TcpListener, source: MetricsSource) -> std::io::Result<(Self, SocketAddr)> {
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let (ended, stop) = std::io::pipe()?;
        let name = thread::Builder::new().name("chiasm-metrics".into());
        let thread = name.spawn(move || serve(&listener, &ended, &source))?;
        Ok((Self { stop: Some(stop), thread: Some(thread) }, bound))
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // At most one client's deadline away.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, ended: &PipeReader, source: &MetricsSource) {
    loop {
        let mut sources = [PollFd::new(listener, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        let _ = poll(&mut sources, None);
        if !sources[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            // That a client does not get its answer is its own business.
            Ok((client, _)) => drop(answer(client, source)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept on the metrics port, trying again in a second");
                thread::sleep(ERROR_PAUSE);
            }
        }
    }
}

fn answer(mut client: TcpStream, source: &MetricsSource) -> std::io::Result<()> {
    let end = Instant::now() + DEADLINE;
    client.set_nonblocking(false)?;
    let request = read_request(&mut client, end)?;
    let mut words = request.split(u8::is_ascii_whitespace);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => match source.metrics() {
            Some(metrics) => ("200 OK", CONTENT_TYPE, metrics.to_text()),
            None => ("503 Service Unavailable", "text/plain", "the node has ended\n".into()),
        },
        (b"GET" | b"HEAD", _) => ("404 Not Found", "text/plain", "there is /metrics\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "there is GET /metrics\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nAllow: GET, HEAD\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    write_before(&mut client, head.as_bytes(), end)?;
    if method == b"HEAD" { Ok(()) } else { write_before(&mut client, body.as_bytes(), end) }
}

/// The head of a request; what follows it is not read.
fn read_request(client: &mut TcpStream, end: Instant) -> std::io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        client.set_read_timeout(Some(left(end)?))?;
        let count = client.read(&mut buffer)?;
        if count == 0 || request.len() + count > MAX_REQUEST_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        request.extend_from_slice(&buffer[..count]);
    }
    Ok(request)
}

fn write_before(client: &mut TcpStream, mut bytes: &[u8], end: Instant) -> std::io::Result<()> {
    while !bytes.is_empty() {
        client.set_write_timeout(Some(left(end)?))?;
        let count = client.write(bytes)?;
        if count == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Time that is left; an error if it is none.
fn left(end: Instant) -> std::io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback_and_nothing_else_is_guessed() {
        assert_eq!(address("9464").unwrap().to_string(), "127.0.0.1:9464");
        assert_eq!(address("10.0.0.5:9464").unwrap().to_string(), "10.0.0.5:9464");
        assert_eq!(address("[::1]:0").unwrap().to_string(), "[::1]:0");
        for wrong in ["", "x", "65536", "-1", "10.0.0.5", ":", "10.0.0.5:x"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
