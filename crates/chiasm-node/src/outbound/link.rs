//! The control link to one producer: its addresses, its socket, its ZMTP connection.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use chiasm_core::consumer::FailureReason;
use chiasm_core::time::Nanos;
use chiasm_zmtp::{CloseReason, Link, LinkEvent, LinkLimits, SendError};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::LinkState;
use crate::poller::{Interest, Poller};
use crate::socket;
use crate::token::{Source, token};

/// Bytes read from a control link at once.
const READ_BYTES: usize = 16 << 10;

/// What the owner is told.
#[derive(Debug)]
pub(super) enum LinkNews {
    /// The link's socket has another number.
    Socket {
        old: Option<u64>,
        new: Option<u64>,
    },
    /// The endpoint's addresses are wanted.
    Resolve,
    Up,
    Message(Vec<u8>),
    Down(FailureReason),
    /// Not used for long: drop it.
    Dormant,
}

#[derive(Debug)]
struct Control {
    id: u64,
    socket: OwnedFd,
    connecting: bool,
    interest: Interest,
}

#[derive(Debug)]
pub(super) struct ProducerLink {
    link: Link,
    control: Option<Control>,
    /// Addresses that have not been tried in this attempt.
    candidates: VecDeque<SocketAddr>,
    /// Attempts that brought no handshake, counted from the last address that did.
    swallowed: usize,
    came_up: bool,
    /// Set while an attempt is under way and its addresses are known.
    trying: bool,
    /// The address of the control connection that stands, or stood last.
    address: Option<SocketAddr>,
    /// Why the attempt or the connection ended, where the transport's word says less.
    failure: Option<FailureReason>,
    news: VecDeque<LinkNews>,
}

impl ProducerLink {
    pub(super) fn new(now: Nanos, seed: u64, connect_timeout: Duration) -> Self {
        let limits = LinkLimits { connect_timeout, ..LinkLimits::default() };
        Self {
            link: Link::new(limits, seed, now),
            control: None,
            candidates: VecDeque::new(),
            swallowed: 0,
            came_up: false,
            trying: false,
            address: None,
            failure: None,
            news: VecDeque::new(),
        }
    }

    pub(super) fn wake(&mut self, now: Nanos) {
        self.link.wake(now);
    }

    pub(super) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    pub(super) fn state(&self) -> LinkState {
        if self.link.is_up() {
            LinkState::Up
        } else if self.control.is_some() {
            LinkState::Connecting
        } else {
            LinkState::Waiting
        }
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Ends the connection because of what came over it.
    pub(super) fn close(&mut self, now: Nanos, reason: FailureReason) {
        let why = reason.to_string();
        self.failure = Some(reason);
        self.link.close(now, CloseReason::Refused { why });
    }

    pub(super) fn send(&mut self, now: Nanos, payload: Vec<u8>) {
        match self.link.send(now, payload) {
            // A link that is down has told so already, or is about to.
            Ok(()) | Err(SendError::NotReady | SendError::Closed) => {}
            Err(error @ SendError::OutputFull { .. }) => {
                self.close(now, FailureReason::Lost(error.to_string()));
            }
        }
    }

    pub(super) fn resolved(&mut self, now: Nanos, addresses: Result<Vec<SocketAddr>, String>) {
        match addresses {
            Ok(mut addresses) => {
                // The address that has just swallowed an attempt is not the first of the next one.
                let first = self.swallowed.checked_rem(addresses.len()).unwrap_or(0);
                addresses.rotate_left(first);
                self.candidates = addresses.into();
                self.trying = true;
            }
            Err(error) => self.fail(now, FailureReason::Unresolved(error)),
        }
    }

    fn fail(&mut self, now: Nanos, reason: FailureReason) {
        let error = reason.to_string();
        self.failure = Some(reason);
        self.link.connect_failed(now, CloseReason::ConnectFailed { error });
    }

    /// The socket of this number is ready.
    pub(super) fn ready(&mut self, now: Nanos, id: u64, poller: &Poller) {
        let Some(control) = self.control.as_mut().filter(|control| control.id == id) else {
            return;
        };
        if control.connecting {
            match socket::finish_connect(&control.socket) {
                Ok(()) => {
                    control.connecting = false;
                    self.trying = false;
                    self.link.connected(now);
                }
                Err(error) => self.next_address_after(now, &error),
            }
            return;
        }
        let mut buffer = [0; READ_BYTES];
        poller.count(|counts| counts.reads += 1);
        match rustix::io::read(&control.socket, &mut buffer) {
            Ok(0) => self.link.close(now, CloseReason::PeerClosed),
            Ok(bytes) => self.link.receive(now, buffer.get(..bytes).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => {
                let error = io::Error::from(error).to_string();
                self.link.close(now, CloseReason::Io { error });
            }
        }
    }

    fn next_address_after(&mut self, now: Nanos, error: &io::Error) {
        self.drop_socket();
        if self.candidates.is_empty() {
            self.trying = false;
            self.fail(now, socket::connect_failure(error));
        }
    }

    fn drop_socket(&mut self) {
        if let Some(control) = self.control.take() {
            self.news.push_back(LinkNews::Socket { old: Some(control.id), new: None });
        }
    }

    /// Does what can be done now; the next thing for the owner.
    pub(super) fn poll(
        &mut self,
        now: Nanos,
        next_id: &mut u64,
        poller: &Poller,
    ) -> Option<LinkNews> {
        while let Some(event) = self.link.poll_event() {
            match event {
                LinkEvent::Connect => {
                    self.failure = None;
                    self.news.push_back(LinkNews::Resolve);
                }
                LinkEvent::Up(_) => {
                    self.came_up = true;
                    self.news.push_back(LinkNews::Up);
                }
                LinkEvent::Message(payload) => self.news.push_back(LinkNews::Message(payload)),
                LinkEvent::Down(reason) => {
                    if !std::mem::take(&mut self.came_up) {
                        self.swallowed = self.swallowed.wrapping_add(1);
                    }
                    self.drop_socket();
                    self.trying = false;
                    self.candidates.clear();
                    let reason = self.failure.take().unwrap_or_else(|| told(&reason));
                    self.news.push_back(LinkNews::Down(reason));
                }
                LinkEvent::Dormant => self.news.push_back(LinkNews::Dormant),
            }
        }
        self.try_addresses(now, next_id, poller);
        self.flush(now, poller);
        self.news.pop_front()
    }

    fn try_addresses(&mut self, now: Nanos, next_id: &mut u64, poller: &Poller) {
        while self.trying && self.control.is_none() {
            let Some(address) = self.candidates.pop_front() else { return };
            let opened = socket::start_connect(address).and_then(|socket| {
                *next_id += 1;
                poller.add(&socket, token(Source::Control, *next_id), Interest::WRITE)?;
                Ok(socket)
            });
            match opened {
                Ok(socket) => {
                    let id = *next_id;
                    self.address = Some(address);
                    let interest = Interest::WRITE;
                    self.control = Some(Control { id, socket, connecting: true, interest });
                    self.news.push_back(LinkNews::Socket { old: None, new: Some(id) });
                }
                Err(error) => self.next_address_after(now, &error),
            }
        }
    }

    fn flush(&mut self, now: Nanos, poller: &Poller) {
        let Some(control) = self.control.as_mut().filter(|control| !control.connecting) else {
            return;
        };
        let interest = loop {
            let output = self.link.output();
            if output.is_empty() {
                break Interest::READ;
            }
            poller.count(|counts| counts.writes += 1);
            match rustix::net::send(&control.socket, output, SendFlags::NOSIGNAL) {
                Ok(written) => self.link.consume_output(now, written),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break Interest { read: true, write: true },
                // The reader sees the same end, with everything that came before it.
                Err(_) => break Interest::READ,
            }
        };
        if control.interest != interest
            && poller.modify(&control.socket, token(Source::Control, control.id), interest).is_ok()
        {
            control.interest = interest;
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Nanos) {
        self.link.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Nanos {
        self.link.poll_timeout()
    }
}

/// The transport's reason in the consumer's words.
fn told(reason: &CloseReason) -> FailureReason {
    match reason {
        CloseReason::ConnectFailed { .. } | CloseReason::ConnectTimeout { .. } => {
            FailureReason::Unreachable(reason.to_string())
        }
        CloseReason::NotZmtp { .. }
        | CloseReason::VersionTooOld { .. }
        | CloseReason::Mechanism { .. }
        | CloseReason::AsServer { .. }
        | CloseReason::SocketType { .. }
        | CloseReason::BadCommand { .. }
        | CloseReason::BadFlags { .. }
        | CloseReason::MessageBeforeReady
        | CloseReason::MessageTooLarge { .. }
        | CloseReason::CommandTooLarge { .. }
        | CloseReason::Envelope(_) => FailureReason::Garbage(reason.to_string()),
        CloseReason::ShutDown => FailureReason::ShutDown,
        _ => FailureReason::Lost(reason.to_string()),
    }
}
