//! Conversations with status clients: a request line comes, an answer goes, the connection ends.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use chiasm_core::time::Nanos;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{REQUEST, StatusSocket};
use crate::poller::{Interest, Poller};
use crate::token::{Source, token};

/// Conversations at once. One more is closed at once.
const MAX_CONVERSATIONS: usize = 8;

/// From being accepted to the last byte of the answer.
const DEADLINE: Duration = Duration::from_secs(2);

/// Between two clients: at most 50 a second, so that none of them can keep the node's thread busy.
const PAUSE: Duration = Duration::from_millis(20);

/// After an error of accepting, such as no descriptors: the client that waits keeps the socket
/// readable, so look away for a while instead of spinning.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Longest request in bytes.
const MAX_REQUEST_BYTES: usize = 64;

const NO_INTEREST: Interest = Interest { read: false, write: false };

#[derive(Debug)]
struct Conversation {
    socket: OwnedFd,
    ends: Nanos,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
}

/// What a conversation waits for now.
enum Step {
    Wait,
    /// The client wants an answer: [`Server::answer`] it.
    Answer,
    End,
}

/// Somebody who asks for the status, and is to be [answered](Server::answer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask(u64);

/// All conversations of a node. Without a socket it does nothing.
#[derive(Debug, Default)]
pub(crate) struct Server {
    socket: Option<StatusSocket>,
    conversations: BTreeMap<u64, Conversation>,
    next_id: u64,
    /// Accepting rests until then; [`Nanos::NEVER`]: it does not rest.
    rests_until: Option<Nanos>,
}

impl Server {
    pub(crate) fn new(socket: Option<StatusSocket>) -> Self {
        Self { socket, ..Self::default() }
    }

    pub(crate) fn register(&self, poller: &Poller) -> std::io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        poller.add(socket, token(Source::Status, 0), Interest::READ)
    }

    /// The listening socket is readable.
    pub(crate) fn accept(&mut self, now: Nanos, poller: &Poller) {
        let Some(socket) = &self.socket else { return };
        let pause = match socket.accept() {
            Ok(Some(client)) => {
                self.begin(now, client, poller);
                PAUSE
            }
            Ok(None) => PAUSE,
            Err(error) => {
                tracing::warn!(%error, "cannot accept on the status socket, trying again in a second");
                ERROR_PAUSE
            }
        };
        self.rests_until = Some(now.after(pause));
        self.listen_for(NO_INTEREST, poller);
    }

    fn begin(&mut self, now: Nanos, socket: OwnedFd, poller: &Poller) {
        if self.conversations.len() >= MAX_CONVERSATIONS {
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        if poller.add(&socket, token(Source::StatusClient, id), Interest::READ).is_ok() {
            let ends = now.after(DEADLINE);
            let (request, answer) = (Vec::new(), Vec::new());
            self.conversations.insert(id, Conversation { socket, ends, request, answer, sent: 0 });
        }
    }

    fn listen_for(&self, interest: Interest, poller: &Poller) {
        if let Some(socket) = &self.socket {
            let _ = poller.modify(socket, token(Source::Status, 0), interest);
        }
    }

    /// A client's socket is ready. Gives who is to be answered now.
    pub(crate) fn ready(&mut self, id: u64, poller: &Poller) -> Option<Ask> {
        let conversation = self.conversations.get_mut(&id)?;
        match conversation.go_on() {
            Step::Wait => {}
            Step::Answer if conversation.request == REQUEST => return Some(Ask(id)),
            Step::Answer => {
                let error = br#"{"error":"there is one request: status"}"#;
                self.answer(Ask(id), error.to_vec(), poller);
            }
            Step::End => {
                self.conversations.remove(&id);
            }
        }
        None
    }

    /// Sends the answer, a line, as fast as the client takes it.
    pub(crate) fn answer(&mut self, to: Ask, mut answer: Vec<u8>, poller: &Poller) {
        let Some(conversation) = self.conversations.get_mut(&to.0) else { return };
        answer.push(b'\n');
        conversation.answer = answer;
        let source = token(Source::StatusClient, to.0);
        let is_over = matches!(conversation.go_on(), Step::End)
            || poller.modify(&conversation.socket, source, Interest::WRITE).is_err();
        if is_over {
            self.conversations.remove(&to.0);
        }
    }

    /// Ends conversations that take too long, and accepts again.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, poller: &Poller) {
        self.conversations.retain(|_, conversation| now < conversation.ends);
        if self.rests_until.is_some_and(|until| now >= until) {
            self.rests_until = None;
            self.listen_for(Interest::READ, poller);
        }
    }

    /// When [`Server::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        let ends = self.conversations.values().map(|conversation| conversation.ends).min();
        ends.unwrap_or(Nanos::NEVER).min(self.rests_until.unwrap_or(Nanos::NEVER))
    }
}

impl Conversation {
    fn go_on(&mut self) -> Step {
        if self.answer.is_empty() { self.receive() } else { self.send() }
    }

    fn receive(&mut self) -> Step {
        let mut buffer = [0; MAX_REQUEST_BYTES];
        match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Step::End,
            Ok((count, _)) => {
                self.request.extend_from_slice(buffer.get(..count).unwrap_or_default());
                if self.request.contains(&b'\n') {
                    Step::Answer
                } else if self.request.len() >= MAX_REQUEST_BYTES {
                    Step::End
                } else {
                    Step::Wait
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => Step::Wait,
            Err(_) => Step::End,
        }
    }

    fn send(&mut self) -> Step {
        while let Some(rest) = self.answer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN | Errno::INTR) => return Step::Wait,
                Err(_) => return Step::End,
            }
        }
        Step::End
    }
}
