//! A node that reads: consumer, cache, the bytes of its blocks, and the plane that fills them.

use std::time::Duration;

use chiasm_core::cache::{Cache, EntryState, EvictionPolicy};
use chiasm_core::consumer::{
    Consumer, ConsumerConfig, Failure, FailureReason, ReadEnd, ReadOrder, TransferId,
};
use chiasm_core::plane::Plane;
use chiasm_core::producer::StreamRead;
use chiasm_core::time::Nanos;

use super::source::{
    BLOCK_BYTES, HOST, Source, block, block_mut, block_numbers, bytes_at, content_of, digest_of,
    name_of,
};
use super::{BLOCKS, NAMES};

/// A read under way.
pub(super) struct Job {
    pub(super) order: ReadOrder,
    pub(super) source: usize,
    stream: Option<StreamRead>,
    /// The bytes as they landed.
    landed: Vec<u8>,
    pub(super) aborted: bool,
}

pub(super) struct Reader {
    pub(super) cache: Cache,
    pub(super) consumer: Consumer,
    pub(super) bytes: Vec<u8>,
    pub(super) jobs: Vec<Job>,
    pub(super) started: Vec<TransferId>,
    pub(super) arrived: usize,
    pub(super) failures: Vec<(String, Failure)>,
}

impl Reader {
    pub(super) fn new(number: u8, plane: Plane) -> Self {
        let consumer = Consumer::new(ConsumerConfig {
            compat_hash: "same".into(),
            fingerprint: None,
            epoch: u64::from(number),
            session: format!("{number:016x}"),
            block_size_bytes: BLOCK_BYTES as u64,
            planes: [plane].into_iter().collect(),
            host: Some(HOST),
            region: None,
            verify: true,
            ack_timeout: Duration::from_secs(30),
            read_timeout: Duration::from_secs(20),
            lease_margin: Duration::from_secs(1),
        });
        Self {
            cache: Cache::new(BLOCKS, EvictionPolicy::Fifo),
            consumer,
            bytes: vec![0; BLOCKS as usize * BLOCK_BYTES],
            jobs: Vec::new(),
            started: Vec::new(),
            arrived: 0,
            failures: Vec::new(),
        }
    }

    pub(super) fn begin_read(&mut self, order: ReadOrder, source: usize) {
        let (stream, landed, aborted) = (None, Vec::new(), false);
        self.jobs.push(Job { order, source, stream, landed, aborted });
    }

    /// One block further with a job; an aborted one writes a last time before it lets go.
    pub(super) fn read(&mut self, now: Nanos, which: usize, source: &mut Source, blind: bool) {
        let job = &mut self.jobs[which];
        let numbers = block_numbers(&job.order.local);
        if job.aborted {
            if let Some(number) = numbers.get(job.landed.len() / BLOCK_BYTES) {
                block_mut(&mut self.bytes, *number).fill(0xDD);
            }
            return self.end_read(now, which, source, ReadEnd::Failed(lost()));
        }
        // Over shm nobody watches the lease while it copies.
        let extents = if let Some(shm) = &job.order.shm {
            shm.extents.clone()
        } else {
            if job.stream.is_none() {
                let token = job.order.token.expect("tcp");
                job.stream = source.producer.open_stream(now, token);
            }
            match &job.stream {
                Some(stream) if now <= stream.deadline || blind => stream.extents.clone(),
                _ => return self.end_read(now, which, source, ReadEnd::Failed(lost())),
            }
        };
        let at = job.landed.len() / BLOCK_BYTES;
        if let Some(theirs) = block_numbers(&extents).get(at) {
            let chunk = block(&source.bytes, *theirs).to_vec();
            block_mut(&mut self.bytes, numbers[at]).copy_from_slice(&chunk);
            job.landed.extend(chunk);
        }
        if job.landed.len() as u64 == job.order.bytes {
            let bytes = job.landed.len() as u64;
            let digest = job.order.digest.then(|| digest_of(&job.landed));
            self.end_read(now, which, source, ReadEnd::Landed { bytes, digest });
        }
    }

    pub(super) fn end_read(&mut self, now: Nanos, which: usize, source: &mut Source, end: ReadEnd) {
        let job = self.jobs.remove(which);
        if let Some(stream) = job.stream {
            let completed = matches!(end, ReadEnd::Landed { .. });
            source.producer.stream_ended(stream.stream, completed, &mut source.cache);
        }
        self.consumer.read_ended(now, job.order.transfer, end, &mut self.cache);
    }

    /// Collects what has ended; what has arrived is right at that instant.
    pub(super) fn collect(&mut self) {
        while self.consumer.poll_staged().is_some() {}
        while let Some(finished) = self.consumer.poll_finished() {
            match finished.outcome {
                Ok(arrived) => {
                    assert!(!arrived.conflict);
                    let entry = self.cache.entry(arrived.entry).expect("published just now");
                    assert_eq!(*entry.hash(), finished.hash);
                    self.arrived += 1;
                }
                Err(failure) => self.failures.push((finished.hash.to_string(), failure)),
            }
        }
    }

    /// Every entry that can be found holds exactly what its name stands for, now and later: nothing
    /// writes into it any more.
    pub(super) fn check(&self) {
        self.cache.check().unwrap();
        for name in 0..NAMES {
            let Some((_, entry)) = self.cache.find(&name_of(name)) else { continue };
            assert_eq!(entry.state(), EntryState::Ready);
            let found = bytes_at(&self.bytes, entry.extents());
            assert_eq!(found, content_of(name), "the bytes of name{name} (S2, S3)");
        }
    }
}

fn lost() -> FailureReason {
    FailureReason::Plane("lost".into())
}
