//! The producer's end of a data stream: reads READ frames, writes the granted bytes straight from
//! the region's mapping.
//!
//! It must never send a byte after the end of a lease: then it closes instead (S2).

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use chiasm_core::producer::{GrantToken, StreamId, StreamRead};
use chiasm_core::time::Nanos;
use chiasm_region::Region;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::frame::{ANSWER_BYTES, AnswerFrame, MAX_PIPELINED, PREAMBLE, READ_BYTES, ReadFrame};
use super::{Calls, Progress, SLICE_BYTES};

/// What a stream asks of the producer.
pub trait Serving {
    /// Opens the grant of `token`; `None` if it opens nothing.
    fn open(&mut self, token: GrantToken) -> Option<StreamRead>;
    /// All bytes of the grant are in the socket: it ends now.
    fn completed(&mut self, stream: StreamId);
}

#[derive(Debug)]
struct Sending {
    header: [u8; ANSWER_BYTES],
    header_sent: usize,
    /// `None` for a refusal, which is a header alone.
    read: Option<StreamRead>,
    offset: u64,
}

/// One data stream at the producer.
#[derive(Debug)]
pub struct ServeStream {
    inbox: [u8; READ_BYTES * 8],
    filled: usize,
    greeted: bool,
    requests: VecDeque<ReadFrame>,
    sending: Option<Sending>,
    last_progress: Nanos,
    slice_bytes: usize,
    calls: Calls,
}

impl ServeStream {
    /// A stream of which nothing has been read yet, the preamble included.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Self {
            inbox: [0; READ_BYTES * 8],
            filled: 0,
            greeted: false,
            requests: VecDeque::new(),
            sending: None,
            last_progress: now,
            slice_bytes: SLICE_BYTES,
            calls: Calls::default(),
        }
    }

    /// Moves at most `bytes` in one slice of work instead of [`SLICE_BYTES`]. For tests of slow peers.
    pub fn limit_slice(&mut self, bytes: usize) {
        self.slice_bytes = bytes;
    }

    /// Whether it makes sense to read from the socket.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        self.requests.len() < MAX_PIPELINED
    }

    /// Whether there is something to write.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.sending.is_some() || !self.requests.is_empty()
    }

    /// When a byte last moved, for the idle and stall limits of whoever owns the socket.
    #[must_use]
    pub fn last_progress(&self) -> Nanos {
        self.last_progress
    }

    /// System calls since the last time that this was asked.
    pub fn take_calls(&mut self) -> Calls {
        std::mem::take(&mut self.calls)
    }

    /// The grant whose bytes are half way out: it is lost if the stream is closed now.
    #[must_use]
    pub fn serving(&self) -> Option<StreamId> {
        self.sending.as_ref()?.read.as_ref().map(|read| read.stream)
    }

    /// Reads and writes what the socket takes, at most one slice.
    pub fn progress(
        &mut self,
        now: Nanos,
        socket: BorrowedFd<'_>,
        region: &Region,
        producer: &mut impl Serving,
    ) -> Progress {
        match self.work(now, socket, region, producer) {
            Ok(progress) => progress,
            Err(Over(reason)) => Progress::Closed(reason),
        }
    }

    fn work(
        &mut self,
        now: Nanos,
        socket: BorrowedFd<'_>,
        region: &Region,
        producer: &mut impl Serving,
    ) -> Result<Progress, Over> {
        self.read(now, socket)?;
        let mut slice = self.slice_bytes;
        loop {
            if self.sending.is_none() && !self.start_next(producer) {
                return Ok(Progress::Blocked);
            }
            if slice == 0 {
                return Ok(Progress::Yielded);
            }
            match self.write(now, socket, region, slice)? {
                Written::Blocked => return Ok(Progress::Blocked),
                Written::Some(bytes) => slice -= bytes.min(slice),
                Written::Finished => {
                    let sent = self.sending.take().and_then(|sending| sending.read);
                    if let Some(read) = sent {
                        producer.completed(read.stream);
                    }
                }
            }
        }
    }

    fn read(&mut self, now: Nanos, socket: BorrowedFd<'_>) -> Result<(), Over> {
        while self.wants_read() {
            let room = self.inbox.get_mut(self.filled..).unwrap_or_default();
            let room_bytes = room.len();
            self.calls.reads += 1;
            let bytes = match rustix::io::read(socket, room) {
                Ok(0) => return Err(Over("the consumer closed the stream".into())),
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Over(format!("reading: {}", io::Error::from(error)))),
            };
            self.filled += bytes;
            self.last_progress = now;
            self.parse()?;
            // What comes after it makes the socket readable again.
            if bytes < room_bytes {
                break;
            }
        }
        Ok(())
    }

    fn parse(&mut self) -> Result<(), Over> {
        if !self.greeted {
            let seen = self.inbox.get(..self.filled.min(PREAMBLE.len())).unwrap_or_default();
            if !PREAMBLE.starts_with(seen) {
                return Err(Over(format!(
                    "preamble {seen:02x?} is none of a data stream of revision 1"
                )));
            }
            if seen.len() < PREAMBLE.len() {
                return Ok(());
            }
            self.greeted = true;
            self.consume(PREAMBLE.len());
        }
        while self.filled > 0 {
            // Before the frame is whole: a stream of something else is not held open for the rest.
            ReadFrame::check_kind(self.inbox[0]).map_err(Over)?;
            if self.filled < READ_BYTES {
                break;
            }
            if let Some(frame) = self.inbox.first_chunk::<READ_BYTES>() {
                self.requests.push_back(ReadFrame::decode(*frame).map_err(Over)?);
            }
            self.consume(READ_BYTES);
        }
        Ok(())
    }

    fn consume(&mut self, bytes: usize) {
        self.inbox.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }

    /// Takes the next request up. False if there is none.
    fn start_next(&mut self, producer: &mut impl Serving) -> bool {
        let Some(request) = self.requests.pop_front() else { return false };
        let read = producer.open(request.token);
        let answer = match &read {
            Some(read) => AnswerFrame::Data { id: request.id, length: read.bytes },
            None => AnswerFrame::Refused { id: request.id },
        };
        self.sending = Some(Sending { header: answer.encode(), header_sent: 0, read, offset: 0 });
        true
    }

    fn write(
        &mut self,
        now: Nanos,
        socket: BorrowedFd<'_>,
        region: &Region,
        slice: usize,
    ) -> Result<Written, Over> {
        let Some(sending) = &mut self.sending else { return Ok(Written::Finished) };
        if let Some(read) = &sending.read
            && now > read.deadline
        {
            return Err(Over("the lease ran out while its bytes were being sent".into()));
        }
        let header = sending.header.get(sending.header_sent..).unwrap_or_default();
        if !header.is_empty() {
            self.calls.writes += 1;
            let more = sending.read.as_ref().is_some_and(|read| read.bytes > 0);
            let flags = if more { SendFlags::MORE } else { SendFlags::empty() };
            let sent = rustix::net::send(socket, header, flags | SendFlags::NOSIGNAL);
            let Some(bytes) = unless_blocked(sent.map_err(io::Error::from))? else {
                return Ok(Written::Blocked);
            };
            sending.header_sent += bytes;
            self.last_progress = now;
            return Ok(Written::Some(bytes));
        }
        let Some(read) = &sending.read else { return Ok(Written::Finished) };
        let left = read.bytes - sending.offset;
        if left == 0 {
            return Ok(Written::Finished);
        }
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(slice);
        self.calls.writes += 1;
        let sent = region.send(socket, &read.extents, sending.offset, length);
        let Some(bytes) = unless_blocked(sent)? else { return Ok(Written::Blocked) };
        sending.offset += bytes as u64;
        self.last_progress = now;
        Ok(Written::Some(bytes))
    }
}

enum Written {
    Some(usize),
    Blocked,
    Finished,
}

struct Over(String);

/// The bytes moved; `None` if the socket is full.
fn unless_blocked(sent: io::Result<usize>) -> Result<Option<usize>, Over> {
    match sent {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
        Err(error) => Err(Over(format!("writing: {error}"))),
    }
}
