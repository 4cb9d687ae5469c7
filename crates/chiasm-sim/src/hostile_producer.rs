//! A producer that its peers have approved and that lies to them. Its instance is a real one; what it
//! answers is distorted on its way out.

use chiasm_core::extent::Extent;
use chiasm_core::plane::Plane;
use chiasm_core::wire::{AckLimits, AckStatus, XferAck};
use chiasm_zmtp::ConnectionId;

use crate::fault::Fault;
use crate::world::World;

/// Ways of lying, in the order in which they are tried.
const LIES: &[Fault] = &[
    Fault::Silence,
    Fault::EndlessNotReady,
    Fault::RefusesForGood,
    Fault::BadAgent,
    Fault::WrongExtents,
    Fault::ForeignHash,
    Fault::LyingSize,
    Fault::WrongDigest,
    Fault::WrongFingerprint,
    Fault::WrongSession,
    Fault::UnknownStatus,
    Fault::WrongPlane,
    Fault::AckFlood,
    Fault::OversizedMessage,
    Fault::ChangingEpoch,
];

impl World {
    /// Sends something else than the answer, or nothing, or the answer.
    pub(crate) fn distort(
        &mut self,
        number: usize,
        peer: ConnectionId,
        request: &[u8],
        answer: Vec<u8>,
    ) {
        let lie = LIES.iter().copied().find(|lie| self.fires(*lie));
        let Some(lie) = lie else {
            self.reply(number, peer, answer);
            return;
        };
        match lie {
            Fault::Silence => {}
            Fault::AckFlood => {
                for _ in 0..8 {
                    self.reply(number, peer, answer.clone());
                }
                self.reply(number, peer, request.to_vec());
            }
            Fault::UnknownStatus => {
                // The status is one byte; another number leaves the rest as it was.
                let place = answer.windows(7).position(|bytes| bytes == b"\xa6status");
                let mut answer = answer;
                if let Some(status) = place.and_then(|place| answer.get_mut(place + 7)) {
                    *status = 42;
                }
                self.reply(number, peer, answer);
            }
            Fault::OversizedMessage => {
                // A frame of 2^40 bytes: the length is judged before any of it has come.
                let mut bytes = vec![0x01, 0x00, 0x02];
                bytes.extend((1_u64 << 40).to_be_bytes());
                if let Some(connection) = self.nodes[number].peers.get(&peer).copied() {
                    self.transmit(connection, false, bytes);
                }
            }
            _ => {
                let lied = self.lie(number, lie, &answer);
                self.reply(number, peer, lied.unwrap_or(answer));
            }
        }
    }

    /// The answer with a lie in it; `None` if there is nothing to lie about.
    fn lie(&mut self, number: usize, lie: Fault, answer: &[u8]) -> Option<Vec<u8>> {
        let limits = AckLimits::default();
        let mut metadata = Vec::new();
        let mut ack = XferAck::decode(answer, &limits).ok()?;
        let entry = self.catalogue.number_of(ack.mm_hash)?;
        let other = self.catalogue.content((entry + 1) % self.catalogue.len()).hash.clone();
        if lie == Fault::EndlessNotReady {
            ack.status = AckStatus::NotReady;
            ack.session_id = "";
            return Some(ack.encode());
        }
        if lie == Fault::RefusesForGood {
            let refusals = [AckStatus::Incompat, AckStatus::Version, AckStatus::Internal];
            ack.status = refusals[self.random.index(refusals.len())];
            ack.session_id = "";
            return Some(ack.encode());
        }
        if !ack.status.is_ok() {
            return None;
        }
        if lie == Fault::BadAgent {
            metadata.extend(ack.agent_metadata);
            *metadata.last_mut()? ^= u8::try_from(1 + self.random.below(4)).unwrap_or(1);
            ack.agent_metadata = &metadata;
            return Some(ack.encode());
        }
        let random = self.random.below(4);
        let mut forges = false;
        let extension = ack.chiasm.as_mut()?;
        match lie {
            Fault::WrongExtents => {
                let moved = extension.extents.iter().filter_map(|extent| {
                    let first = u32::try_from(u64::from(extent.first()) + random + 1).ok()?;
                    Extent::new(if random == 3 { u32::MAX - 9 } else { first }, extent.count())
                });
                extension.extents = moved.collect();
                forges = extension.digest.is_none();
            }
            Fault::LyingSize => match random {
                0 => extension.bytes = extension.bytes.map(|bytes| bytes + 1),
                1 => extension.shape = extension.shape.map(|(rows, width)| (rows + 1, width)),
                2 => extension.extents.push(Extent::new(0, 1)?),
                _ => extension.block_size_bytes = Some(4096),
            },
            Fault::WrongDigest => {
                extension.digest.as_mut()?.0[0] ^= 1;
            }
            Fault::WrongFingerprint => extension.fingerprint = Some("of other weights"),
            Fault::WrongPlane => {
                let nixl = extension.plane == Some(Plane::Nixl);
                let wrong = if nixl { Plane::Shm } else { Plane::Nixl };
                extension.plane = if random == 0 { None } else { Some(wrong) };
            }
            Fault::ChangingEpoch => extension.epoch = extension.epoch.wrapping_add(random + 1),
            Fault::ForeignHash => ack.mm_hash = other.as_str(),
            _ => ack.session_id = "another",
        }
        let bytes = ack.encode();
        if forges {
            // Nothing but the producer's word says what these bytes are: trusted, and documented.
            self.forged.insert((number, entry));
        }
        Some(bytes)
    }
}
