//! The fake producers of a [`World`]: how they behave, in the wire's bytes.

use std::collections::VecDeque;

use chiasm_core::consumer::{ConsumerAction, FailureReason, ReadEnd, TransferId};
use chiasm_core::digest::Digest;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::extent::Extent;
use chiasm_core::plane::Plane;
use chiasm_core::wire::{AckExtension, AckStatus, XferAck, XferDone, XferReq};

use super::world::{BLOCK, CONNECT_TIMEOUT, World, meta, producer};

/// How a fake producer behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Grants, and its bytes land at once.
    Healthy,
    /// Grants; bytes land when the test says so.
    Slow,
    /// Answers when the test says so.
    Asked,
    /// Nobody listens.
    Refuses,
    /// Connecting leads nowhere.
    BlackHole,
    /// Accepts connections and says nothing.
    Silent,
    /// Answers with this.
    Nacks(AckStatus),
    /// Grants; the bytes are not those that it promised.
    WrongBytes,
    /// Grants, healthy, but holds other bytes than everybody else.
    OtherBytes,
    /// Grants; the plane fails.
    NoBytes,
}

#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) source: Endpoint,
    pub(super) hash: String,
    session: String,
    attempt: u32,
}

pub(super) fn digest_of(hash: &str) -> Digest {
    let mut digest = [0; 16];
    for (at, byte) in hash.bytes().take(16).enumerate() {
        digest[at] = byte;
    }
    Digest(digest)
}

impl World {
    pub(super) fn set(&mut self, name: &str, manner: Manner) {
        let source = producer(name);
        let goes_away = matches!(manner, Manner::Refuses | Manner::BlackHole);
        if self.manners.insert(source.clone(), manner) != Some(manner) && goes_away {
            self.questions.retain(|question| question.source != source);
            self.consumer.link_down(&source, &FailureReason::Lost("reset".into()));
            self.settle();
        }
    }

    /// Every manner, and everything that is still open, ends well from now on.
    pub(super) fn heal(&mut self) {
        for name in ["p", "q", "r"] {
            self.manners.insert(producer(name), Manner::Healthy);
        }
        for question in std::mem::take(&mut self.questions) {
            self.grant(&question, digest_of(&question.hash));
        }
        let reads: Vec<_> = self.reads.keys().copied().collect();
        for transfer in reads {
            self.land(transfer);
        }
    }

    fn manner(&self, source: &Endpoint) -> Manner {
        self.manners.get(source).copied().unwrap_or(Manner::Healthy)
    }

    /// The first unanswered request for `name` is granted.
    pub(super) fn agree(&mut self, name: &str) {
        let place = self.questions.iter().position(|question| question.hash == name);
        let question = self.questions.remove(place.expect("it was asked for")).unwrap();
        self.grant(&question, digest_of(name));
    }

    pub(super) fn reading(&self, name: &str, from: &str) -> Option<TransferId> {
        let (source, digest) = (producer(from), digest_of(name));
        let found = self
            .reads
            .iter()
            .find(|(id, order)| order.source == source && self.digests.get(*id) == Some(&digest));
        found.map(|(id, _)| *id)
    }

    /// All bytes of the read land.
    pub(super) fn land(&mut self, transfer: TransferId) {
        let digest = self.digests.get(&transfer).copied();
        self.end_read(transfer, digest);
    }

    pub(super) fn end_read(&mut self, transfer: TransferId, digest: Option<Digest>) {
        let Some(order) = self.reads.remove(&transfer) else { return };
        let end = ReadEnd::Landed { bytes: order.bytes, digest };
        self.consumer.read_ended(self.now, transfer, end, &mut self.cache);
        self.settle();
    }

    pub(super) fn answer(&mut self, question: &Question, status: AckStatus) {
        let ack = XferAck {
            mm_hash: &question.hash,
            status,
            session_id: "",
            src_block_indices: Vec::new(),
            agent_metadata: &[],
            mem_descriptor: &[],
            chiasm: Some(AckExtension { attempt: question.attempt, ..AckExtension::default() }),
        };
        let payload = ack.encode();
        self.consumer.receive(self.now, &question.source, &payload, &mut self.cache);
        self.settle();
    }

    fn grant(&mut self, question: &Question, digest: Digest) {
        let meta = meta(self.rows[&question.hash]);
        let extension = AckExtension {
            attempt: question.attempt,
            plane: Some(Plane::Tcp),
            token: Some([5; 16]),
            extents: Extent::new(0, meta.rows).into_iter().collect(),
            dtype: meta.dtype,
            shape: Some((meta.rows, meta.width)),
            bytes: Some(meta.bytes),
            block_size_bytes: Some(BLOCK),
            lease_ms: Some(30_000),
            digest: Some(digest),
            ..AckExtension::default()
        };
        let ack = XferAck {
            mm_hash: &question.hash,
            status: AckStatus::Ok,
            session_id: &question.session,
            src_block_indices: Vec::new(),
            agent_metadata: &[],
            mem_descriptor: &[],
            chiasm: Some(extension),
        };
        let payload = ack.encode();
        self.consumer.receive(self.now, &question.source, &payload, &mut self.cache);
        // The order for the read comes next, if there is room.
        let mut rest = VecDeque::new();
        while let Some(action) = self.consumer.poll_action() {
            if let ConsumerAction::StartRead(order) = &action {
                self.digests.insert(order.transfer, digest);
            }
            rest.push_back(action);
        }
        self.admission.advance(self.now, &mut self.cache, &mut self.consumer);
        for action in rest {
            self.act(action);
        }
        self.settle();
    }

    pub(super) fn act(&mut self, action: ConsumerAction) {
        match action {
            ConsumerAction::OpenLink(source) => {
                self.contacts.push(source.clone());
                match self.manner(&source) {
                    Manner::Refuses => {
                        self.consumer.link_down(&source, &FailureReason::Refused);
                    }
                    Manner::BlackHole => {
                        self.black_holes.insert((self.now.after(CONNECT_TIMEOUT), source));
                    }
                    _ => self.consumer.link_up(self.now, &source),
                }
            }
            ConsumerAction::CloseLink(source, reason) => {
                self.consumer.link_down(&source, &reason);
            }
            // These producers pin nothing, so there is nothing to give back.
            ConsumerAction::Send(_, payload) if XferDone::decode(&payload).is_ok() => {}
            ConsumerAction::Send(source, payload) => self.asked(&source, &payload),
            ConsumerAction::StartRead(order) => {
                let transfer = order.transfer;
                let manner = self.manner(&order.source);
                self.reads.insert(transfer, order);
                match manner {
                    Manner::Healthy | Manner::OtherBytes => self.land(transfer),
                    Manner::WrongBytes => self.end_read(transfer, Some(Digest([0xBD; 16]))),
                    Manner::NoBytes => self.fail_read(transfer),
                    _ => {}
                }
            }
            ConsumerAction::AbortRead(transfer) => {
                self.aborted += 1;
                self.fail_read(transfer);
            }
        }
    }

    pub(super) fn fail_read(&mut self, transfer: TransferId) {
        if self.reads.remove(&transfer).is_some() {
            let end = ReadEnd::Failed(FailureReason::Plane("the stream broke".into()));
            self.consumer.read_ended(self.now, transfer, end, &mut self.cache);
        }
    }

    fn asked(&mut self, source: &Endpoint, payload: &[u8]) {
        let request = XferReq::decode(payload).expect("our own request");
        let question = Question {
            source: source.clone(),
            hash: request.mm_hash.into(),
            session: request.session_id.into(),
            attempt: request.chiasm.expect("we are Chiasm").attempt,
        };
        self.sent.push((self.now, source.to_string(), question.hash.clone()));
        match self.manner(source) {
            Manner::Healthy | Manner::Slow | Manner::WrongBytes | Manner::NoBytes => {
                self.grant(&question, digest_of(&question.hash));
            }
            Manner::OtherBytes => self.grant(&question, Digest([0xEE; 16])),
            Manner::Nacks(status) => self.answer(&question, status),
            Manner::Silent | Manner::Refuses | Manner::BlackHole => {}
            Manner::Asked => self.questions.push_back(question),
        }
    }
}
