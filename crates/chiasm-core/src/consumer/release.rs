//! Letting go of grants: the producer is told when nobody reads under one any more (PROTOCOL 50).
//!
//! It must never end a grant under which another read goes on: two transfers that expect one entry in
//! different forms share the grant that the later of them has renewed.

use super::transfer::{Held, State, Transfer, Wanted};
use super::{Consumer, ConsumerAction};
use crate::endpoint::Endpoint;
use crate::mm_hash::MmHash;
use crate::wire::XferDone;

impl Consumer {
    /// Nobody reads under this grant of `hash` any more, unless some other transfer does.
    pub(super) fn release(&mut self, source: &Endpoint, hash: &MmHash, held: Held) {
        if let Some(other) = self.reader(source, hash, held) {
            other.attempt = other.attempt.max(held.attempt);
            return;
        }
        let Some(link) = self.links.get(source) else { return };
        // On another connection the producer would not listen: the grant ends with its lease.
        if link.number() != Some(held.session) {
            return;
        }
        let session = link.session(held.generation);
        let done = XferDone { mm_hash: hash.as_str(), session_id: &session, attempt: held.attempt };
        self.actions.push_back(ConsumerAction::Send(source.clone(), done.encode()));
    }

    /// A transfer that reads under the grant.
    fn reader(&mut self, source: &Endpoint, hash: &MmHash, held: Held) -> Option<&mut Held> {
        // All forms of one hash and source stand next to each other.
        let (rows, width, blocks, dtype) = (0, 0, 0, None);
        let (hash, source) = (hash.clone(), source.clone());
        let first = Wanted { hash, source, rows, width, blocks, dtype };
        let forms = self.by_wanted.range(first.clone()..);
        let forms = forms
            .take_while(|(form, _)| (&form.hash, &form.source) == (&first.hash, &first.source));
        for (_, id) in forms {
            if let Some(Transfer { state: State::Reading(reading), .. }) = self.transfers.get(id)
                && reading.held.is_some_and(|other| other.is_of(held))
            {
                return match self.transfers.get_mut(id).map(|transfer| &mut transfer.state) {
                    Some(State::Reading(reading)) => reading.held.as_mut(),
                    _ => None,
                };
            }
        }
        None
    }
}
