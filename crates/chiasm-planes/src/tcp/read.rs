//! The consumer's end of a data stream: asks for granted bytes and receives them straight into its
//! own blocks, hashing them as they land.
//!
//! It must never write into a block of a job that has ended: what comes for an abandoned job is
//! received into a scratch buffer and dropped.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use chiasm_core::consumer::{FailureReason, ReadEnd, TransferId};
use chiasm_core::extent::Extent;
use chiasm_core::producer::GrantToken;
use chiasm_core::time::Nanos;
use chiasm_region::{LandedDigest, Region};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::frame::{ANSWER_BYTES, AnswerFrame, MAX_PIPELINED, PREAMBLE, ReadFrame};
use super::{Calls, Progress, SLICE_BYTES};

/// Most bytes received before they are hashed: they are still in the core's cache then. Larger pieces
/// were slower (measured with the example `plane_throughput` of `chiasm-node`).
const LANDING_BYTES: usize = 256 << 10;

/// One grant's bytes to be read.
#[derive(Debug)]
pub struct ReadJob {
    /// The transfer that it is for.
    pub transfer: TransferId,
    /// Opens the grant at the producer.
    pub token: GrantToken,
    /// Where the bytes go, in order.
    pub local: Vec<Extent>,
    /// Exactly how many.
    pub bytes: u64,
    /// Whether to compute the digest of the landed bytes.
    pub digest: bool,
}

#[derive(Debug)]
struct Pending {
    id: u32,
    transfer: TransferId,
    local: Vec<Extent>,
    bytes: u64,
    digest: bool,
    offset: u64,
    /// Its end has been reported; what still comes is dropped.
    abandoned: bool,
}

/// One data stream at the consumer.
#[derive(Debug)]
pub struct ReadStream {
    outbox: Vec<u8>,
    next_id: u32,
    /// In the order in which they were asked for, which is the order of the answers.
    pending: VecDeque<Pending>,
    /// Of the bytes of the job in front, which are the only ones that land. Kept from job to job: making
    /// a new one costs as much as copying 16 KiB.
    digest: Option<LandedDigest>,
    header: [u8; ANSWER_BYTES],
    header_filled: usize,
    in_body: bool,
    ended: Vec<(TransferId, ReadEnd)>,
    last_progress: Nanos,
    calls: Calls,
}

impl ReadStream {
    /// A stream on which nothing has been sent yet, the preamble included.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Self {
            outbox: PREAMBLE.to_vec(),
            next_id: 0,
            pending: VecDeque::new(),
            digest: None,
            header: [0; ANSWER_BYTES],
            header_filled: 0,
            in_body: false,
            ended: Vec::new(),
            last_progress: now,
            calls: Calls::default(),
        }
    }

    /// Whether the stream can take one more job.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.pending.len() < MAX_PIPELINED
    }

    /// Bytes that are still to come on this stream.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        self.pending.iter().map(|job| job.bytes - job.offset).sum()
    }

    /// Asks for a job's bytes. Call [`ReadStream::progress`] soon after.
    pub fn start(&mut self, now: Nanos, job: ReadJob) {
        if self.pending.is_empty() {
            self.last_progress = now;
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.outbox.extend_from_slice(&ReadFrame { id, token: job.token }.encode());
        self.pending.push_back(Pending {
            id,
            transfer: job.transfer,
            local: job.local,
            bytes: job.bytes,
            digest: job.digest,
            offset: 0,
            abandoned: false,
        });
    }

    /// Ends a job at once: from now on nothing of it is written into the region. True if it was here.
    pub fn abort(&mut self, transfer: TransferId) -> bool {
        let job = self.pending.iter_mut().find(|job| job.transfer == transfer && !job.abandoned);
        let Some(job) = job else { return false };
        job.abandoned = true;
        let end = ReadEnd::Failed(FailureReason::Plane("aborted".into()));
        self.ended.push((transfer, end));
        true
    }

    /// The stream is lost: every job that has not ended fails for this reason.
    pub fn lose(&mut self, reason: &str) {
        self.outbox.clear();
        for job in self.pending.drain(..).filter(|job| !job.abandoned) {
            let end = ReadEnd::Failed(FailureReason::Plane(reason.into()));
            self.ended.push((job.transfer, end));
        }
    }

    /// The jobs that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<(TransferId, ReadEnd)> {
        std::mem::take(&mut self.ended)
    }

    /// Whether something is to be written.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Asks for what was started, as far as the socket takes it. [`ReadStream::progress`] does so as well,
    /// and finds out what is wrong with a socket that takes nothing.
    pub fn ask(&mut self, now: Nanos, socket: BorrowedFd<'_>) {
        let _ = self.write(now, socket);
    }

    /// System calls since the last time that this was asked.
    pub fn take_calls(&mut self) -> Calls {
        std::mem::take(&mut self.calls)
    }

    /// Whether no job is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// When a byte last moved or, with nothing open before, the last job was asked for.
    #[must_use]
    pub fn last_progress(&self) -> Nanos {
        self.last_progress
    }

    /// Writes and reads what the socket takes, at most one slice.
    pub fn progress(&mut self, now: Nanos, socket: BorrowedFd<'_>, region: &Region) -> Progress {
        match self.work(now, socket, region) {
            Ok(progress) => progress,
            Err(reason) => Progress::Closed(reason),
        }
    }

    fn work(
        &mut self,
        now: Nanos,
        socket: BorrowedFd<'_>,
        region: &Region,
    ) -> Result<Progress, String> {
        self.write(now, socket)?;
        let mut slice = SLICE_BYTES;
        while slice > 0 {
            self.calls.reads += 1;
            let received =
                if self.in_body { self.body(socket, region, slice) } else { self.head(socket) };
            match received {
                Ok(0) => return Err("the producer closed the stream".into()),
                Ok(_) if self.pending.is_empty() => return Err("bytes that answer no read".into()),
                Ok(bytes) => {
                    self.last_progress = now;
                    slice -= bytes.min(slice);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Progress::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("reading: {error}")),
            }
            if !self.in_body && self.header_filled == ANSWER_BYTES {
                self.answer()?;
            }
            self.finish_full_job();
            // Nothing more is to come; what comes all the same makes the socket readable again.
            if self.pending.is_empty() {
                return Ok(Progress::Blocked);
            }
        }
        Ok(Progress::Yielded)
    }

    fn write(&mut self, now: Nanos, socket: BorrowedFd<'_>) -> Result<(), String> {
        while !self.outbox.is_empty() {
            self.calls.writes += 1;
            match rustix::net::send(socket, &self.outbox, SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    self.outbox.drain(..bytes);
                    self.last_progress = now;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("writing: {}", io::Error::from(error))),
            }
        }
        Ok(())
    }

    fn head(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let room = self.header.get_mut(self.header_filled..).unwrap_or_default();
        let bytes = rustix::io::read(socket, room)?;
        self.header_filled += bytes;
        Ok(bytes)
    }

    /// A header is complete.
    fn answer(&mut self) -> Result<(), String> {
        self.header_filled = 0;
        let answer = AnswerFrame::decode(self.header)?;
        let Some(job) = self.pending.front() else { return Ok(()) };
        match answer {
            AnswerFrame::Data { id, .. } | AnswerFrame::Refused { id } if id != job.id => Err(
                format!("an answer to read {id}, which is not the oldest open one ({})", job.id),
            ),
            AnswerFrame::Data { length, .. } if length != job.bytes => {
                let (landed, expected) = (length, job.bytes);
                self.end_front(ReadEnd::Failed(FailureReason::Length { landed, expected }));
                Err(format!("{length} bytes announced on the stream, {expected} granted"))
            }
            AnswerFrame::Data { .. } => {
                self.in_body = true;
                Ok(())
            }
            AnswerFrame::Refused { .. } => {
                let reason = FailureReason::Plane("the grant had ended at the producer".into());
                self.end_front(ReadEnd::Failed(reason));
                Ok(())
            }
        }
    }

    fn body(&mut self, socket: BorrowedFd<'_>, region: &Region, slice: usize) -> io::Result<usize> {
        let Some(job) = self.pending.front_mut() else { return Ok(0) };
        let left = usize::try_from(job.bytes - job.offset).unwrap_or(usize::MAX);
        let length = left.min(slice).min(LANDING_BYTES);
        if job.abandoned {
            let mut scratch = [0; 16 << 10];
            let room = scratch.len().min(length);
            let bytes = rustix::io::read(socket, scratch.get_mut(..room).unwrap_or_default())?;
            job.offset += bytes as u64;
            return Ok(bytes);
        }
        let bytes = region.receive(socket, &job.local, job.offset, length)?;
        if job.digest {
            let digest = self.digest.get_or_insert_default();
            digest.update(region, &job.local, job.offset, bytes).map_err(io::Error::other)?;
        }
        job.offset += bytes as u64;
        Ok(bytes)
    }

    fn finish_full_job(&mut self) {
        let full = self.pending.front().is_some_and(|job| job.offset == job.bytes);
        if self.in_body && full {
            self.in_body = false;
            let Some(job) = self.pending.front().map(|job| (job.bytes, job.digest)) else { return };
            let (bytes, with_digest) = job;
            // Also of a job that was abandoned: the next one's begins with none of its bytes.
            let digest = with_digest.then(|| self.digest.get_or_insert_default().finish_one());
            self.end_front(ReadEnd::Landed { bytes, digest });
        }
    }

    fn end_front(&mut self, end: ReadEnd) {
        if let Some(job) = self.pending.pop_front()
            && !job.abandoned
        {
            self.ended.push((job.transfer, end));
        }
    }
}
