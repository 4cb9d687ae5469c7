//! From an ack to a read under way, or to a grant that is given back.

use std::sync::Arc;
use std::time::Duration;

use super::ack_check::{self, Against};
use super::action::{ConsumerAction, ReadOrder, RemoteAgent, RemoteRegion};
use super::agent::RemoteEntry;
use super::link::{Answer, Link};
use super::transfer::{Held, Reading, State, Transfer};
use super::{Consumer, FailureReason, ReceivedAck, TransferId};
use crate::cache::{Cache, ReserveError};
use crate::endpoint::Endpoint;
use crate::limits::MIN_UPSTREAM_LEASE_LEFT;
use crate::mm_hash::MmHash;
use crate::plane::Plane;
use crate::time::Nanos;
use crate::wire::XferAck;

impl Consumer {
    /// An ack that its transfer waits for.
    pub(super) fn take_ack(
        &mut self,
        now: Nanos,
        source: &Endpoint,
        answer: &Answer,
        received: &ReceivedAck<'_>,
        cache: &mut Cache,
    ) {
        let ack = &received.ack;
        match self.agree(now, source, answer, received, cache) {
            Ok((reading, remote)) => {
                self.start_read(answer.transfer, reading, ack, remote.as_ref(), cache);
            }
            Err(reason) => {
                self.decline(source, answer, ack);
                self.fail(answer.transfer, reason);
            }
        }
    }

    /// What an ack grants is not going to be read.
    pub(super) fn decline(&mut self, source: &Endpoint, answer: &Answer, ack: &XferAck<'_>) {
        if let Some(held) = self.held(source, answer, ack)
            && let Ok(hash) = MmHash::new(ack.mm_hash)
        {
            self.release(source, &hash, held);
        }
    }

    /// The grant that an ack is. Upstream's has no name by which it could be given back.
    fn held(&self, source: &Endpoint, answer: &Answer, ack: &XferAck<'_>) -> Option<Held> {
        let extension = ack.chiasm.as_ref().filter(|_| ack.status.is_ok())?;
        let session = self.links.get(source).and_then(Link::number)?;
        let (attempt, generation) = (answer.attempt, answer.generation);
        // A producer that says what cannot be has not said which plane's grant it has given.
        let plane = extension.plane.filter(|plane| answer.offered.contains(*plane));
        Some(Held { session, generation, attempt, plane })
    }

    /// Checks an ack and, if nothing is wrong with it, takes room for what it grants.
    fn agree(
        &mut self,
        now: Nanos,
        source: &Endpoint,
        answer: &Answer,
        received: &ReceivedAck<'_>,
        cache: &mut Cache,
    ) -> Result<(Reading, Option<RemoteEntry>), FailureReason> {
        let gone = || FailureReason::Lost("while its ack was read".into());
        let Transfer { wanted, .. } = self.transfers.get(&answer.transfer).ok_or_else(gone)?;
        let link = self.links.get(source).ok_or_else(gone)?;
        let session = link.session(answer.generation);
        let (offered, config) = (answer.offered, &self.config);
        let against = Against { wanted, session: &session, offered, away: &self.away, config };
        let (agreed, remote) = ack_check::check(received, &against, &mut self.agents)?;
        let held = self.held(source, answer, &received.ack);
        if held.is_none() && answer.repeated {
            let why =
                "the ack may answer an earlier request: it is asked again under a new session";
            return Err(FailureReason::Plane(why.into()));
        }
        let lease = agreed.lease.saturating_sub(self.config.lease_margin);
        let lease_end = answer.sent.after(lease);
        // An upstream producer gives a new lease whenever it is asked; its acks do not say what is left.
        let needed = if held.is_some() { Duration::ZERO } else { MIN_UPSTREAM_LEASE_LEFT };
        if now.after(needed) >= lease_end {
            return Err(FailureReason::LeaseRanOut);
        }
        let staged = cache.stage(&wanted.hash, agreed.meta, wanted.blocks);
        let entry = staged.map_err(|error| match error {
            ReserveError::TooLarge { .. } => FailureReason::TooLarge,
            ReserveError::Full { .. } | ReserveError::Duplicate { .. } => FailureReason::NoRoom,
        })?;
        let deadline = now.after(self.config.read_timeout);
        let since = now;
        Ok((Reading { entry, agreed, held, lease_end, since, deadline }, remote))
    }

    fn start_read(
        &mut self,
        id: TransferId,
        reading: Reading,
        ack: &XferAck<'_>,
        remote: Option<&RemoteEntry>,
        cache: &Cache,
    ) {
        let Reading { entry, agreed, deadline, .. } = reading;
        let local = cache.entry(entry).map(|entry| entry.extents().to_vec()).unwrap_or_default();
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if let State::Asking { deadline } = transfer.state {
            self.deadlines.remove(&(deadline, id));
        }
        self.deadlines.insert((deadline, id));
        let extension = ack.chiasm.as_ref().filter(|_| agreed.plane == Plane::Shm);
        let shm = extension.map(|extension| RemoteRegion {
            name: extension.region.unwrap_or_default().into(),
            epoch: extension.epoch,
            extents: extension.extents.clone(),
        });
        let nixl = remote.map(|remote| RemoteAgent {
            metadata: Arc::clone(&remote.metadata),
            region: remote.region(),
            runs: remote.runs(agreed.meta.bytes),
            completion: if reading.held.is_some() {
                String::new()
            } else {
                format!("{}:{}", ack.session_id, ack.mm_hash)
            },
        });
        self.actions.push_back(ConsumerAction::StartRead(ReadOrder {
            transfer: id,
            source: transfer.wanted.source.clone(),
            plane: agreed.plane,
            token: agreed.token,
            shm,
            nixl,
            local,
            bytes: agreed.meta.bytes,
            digest: agreed.digest.is_some(),
        }));
        transfer.state = State::Reading(reading);
        self.staged.push_back(id);
    }
}
