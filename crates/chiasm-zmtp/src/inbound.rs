//! The peer's byte stream, cut into greeting, commands and payloads.
//!
//! Never allocates what was only announced, and stores nothing of a frame that it will not hand
//! out: length and envelope are judged when the header is complete.

use crate::close_reason::{CloseReason, EnvelopeProblem};
use crate::frame::{Header, HeaderReader, Kind};
use crate::greeting::GreetingReader;
use crate::limits::MAX_COMMAND_BYTES;

/// A complete piece of the peer's stream.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// The peer's greeting: its ZMTP version.
    Greeting {
        minor: u8,
    },
    Command(Vec<u8>),
    Payload(Vec<u8>),
}

#[derive(Debug)]
enum State {
    Greeting(GreetingReader),
    Header(HeaderReader),
    Body { kind: Kind, missing: usize, body: Vec<u8> },
}

/// Reads one peer's stream.
#[derive(Debug)]
pub(crate) struct Inbound {
    state: State,
    max_message_bytes: usize,
    /// Whether messages are allowed: the peer's READY has been accepted.
    ready: bool,
    /// Whether the empty first frame of a message has come. Commands may come between the frames
    /// of a message: libzmq sends its PINGs so.
    delimiter_seen: bool,
}

impl Inbound {
    pub(crate) fn new(max_message_bytes: usize) -> Self {
        Self {
            state: State::Greeting(GreetingReader::default()),
            max_message_bytes,
            ready: false,
            delimiter_seen: false,
        }
    }

    /// Lets messages through from here on.
    pub(crate) fn allow_messages(&mut self) {
        self.ready = true;
    }

    /// Whether the greeting is still incomplete.
    pub(crate) fn in_greeting(&self) -> bool {
        matches!(self.state, State::Greeting(_))
    }

    /// Takes from the front of `bytes` up to the end of the next item; `None` when `bytes` is
    /// empty and no item is complete.
    pub(crate) fn next_item(&mut self, bytes: &mut &[u8]) -> Result<Option<Item>, CloseReason> {
        loop {
            if let State::Body { kind, missing: 0, body } = &mut self.state {
                let (kind, body) = (*kind, std::mem::take(body));
                self.state = State::Header(HeaderReader::default());
                return Ok(Some(match kind {
                    Kind::Command => Item::Command(body),
                    Kind::More | Kind::Last => Item::Payload(body),
                }));
            }
            let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
            match &mut self.state {
                State::Greeting(greeting) => {
                    *bytes = rest;
                    if let Some((_major, minor)) = greeting.push(*first)? {
                        self.state = State::Header(HeaderReader::default());
                        return Ok(Some(Item::Greeting { minor }));
                    }
                }
                State::Header(header) => {
                    *bytes = rest;
                    if let Some(header) = header.push(*first)? {
                        self.begin(header)?;
                    }
                }
                State::Body { missing, body, .. } => {
                    let taken = bytes.split_at_checked(*missing);
                    let (chunk, rest) = taken.unwrap_or((*bytes, &[]));
                    *bytes = rest;
                    *missing = missing.saturating_sub(chunk.len());
                    append(body, chunk, *missing);
                }
            }
        }
    }

    /// Judges an announced frame and opens its body.
    fn begin(&mut self, header: Header) -> Result<(), CloseReason> {
        let Header { kind, size } = header;
        let limit = match kind {
            Kind::Command => MAX_COMMAND_BYTES,
            Kind::More | Kind::Last if !self.ready => return Err(CloseReason::MessageBeforeReady),
            Kind::More | Kind::Last => self.max_message_bytes,
        };
        let missing = usize::try_from(size).unwrap_or(usize::MAX);
        if missing > limit {
            return Err(match kind {
                Kind::Command => CloseReason::CommandTooLarge { announced: size, limit },
                _ => CloseReason::MessageTooLarge { announced: size, limit },
            });
        }
        // The envelope closes only the connection that got it wrong (hazard D3). It also bounds
        // the number of frames, so that there is no limit of their number to set.
        match (kind, self.delimiter_seen) {
            (Kind::Command, _) => {}
            (Kind::More | Kind::Last, false) if size != 0 => {
                return Err(CloseReason::Envelope(EnvelopeProblem::FirstFrame { bytes: size }));
            }
            (Kind::Last, false) => {
                return Err(CloseReason::Envelope(EnvelopeProblem::NoPayload));
            }
            (Kind::More, true) => {
                return Err(CloseReason::Envelope(EnvelopeProblem::MoreFrames));
            }
            (Kind::More, false) => {
                self.delimiter_seen = true;
                self.state = State::Header(HeaderReader::default());
                return Ok(());
            }
            (Kind::Last, true) => self.delimiter_seen = false,
        }
        self.state = State::Body { kind, missing, body: Vec::new() };
        Ok(())
    }

    /// Heap bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.state {
            State::Greeting(greeting) => greeting.memory_bytes(),
            State::Header(_) => 0,
            State::Body { body, .. } => body.capacity(),
        }
    }
}

/// Appends `chunk` to `body`, of which `missing` more bytes were announced. The buffer at most
/// doubles, and never grows past the frame that was announced.
fn append(body: &mut Vec<u8>, chunk: &[u8], missing: usize) {
    let received = body.len().saturating_add(chunk.len());
    if received > body.capacity() {
        let whole = received.saturating_add(missing);
        let target = body.capacity().saturating_mul(2).clamp(received, whole);
        body.reserve_exact(target.saturating_sub(body.len()));
    }
    body.extend_from_slice(chunk);
}
