//! What each item of a request needs, and what follows for the request.

use super::offer::Offer;
use super::outcome::Trouble;
use super::request::{ItemRef, RequestKey, Settled};
use super::{Admission, Call, Decision, Reason};
use crate::allowlist::{Refusal, Verdict};
use crate::cache::EntryState;
use crate::consumer::Wanted;

impl Admission {
    /// Looks at every item of the request anew and starts what can be started.
    pub(super) fn evaluate(&mut self, key: RequestKey, call: &mut Call<'_>) {
        let Some(request) = self.requests.get(key) else { return };
        let items = request.items.len();
        for at in (0..items).filter_map(|index| key.item(index)) {
            self.steps += 1;
            if self.is_failed(key) {
                return;
            }
            self.look_at(at, call);
        }
        self.fall_back_until_it_fits(key, call);
        self.start_reads(key, call);
        self.conclude(key);
    }

    pub(super) fn is_failed(&self, key: RequestKey) -> bool {
        let request = self.requests.get(key);
        request.is_none_or(|request| request.decision == Decision::Unavailable)
    }

    /// Computed, local hit and no announcement are ready; what is refused or invalid is settled; the
    /// rest waits.
    fn look_at(&mut self, at: ItemRef, call: &mut Call<'_>) {
        let Some(request) = self.requests.get(at.request) else { return };
        let Some(tracked) = self.requests.item(at) else { return };
        if tracked.item.end <= request.computed {
            return self.let_go(at, call);
        }
        if tracked.pin.is_some() {
            return;
        }
        let mut save_pending = false;
        if let Some((entry, found)) = call.cache.find(tracked.item.hash.as_str()) {
            save_pending = found.state() == EntryState::NotReady;
            let (rows, width) = (found.meta().rows, found.meta().width);
            if found.state() == EntryState::Ready {
                if tracked.item.form.fits(found.meta()) {
                    let at_once = tracked.since.is_none();
                    if self.pin(at, entry, call) && at_once {
                        self.lookups.hits += 1;
                    }
                    return;
                }
                if call.cache.evict(entry).is_err() {
                    let reason = Reason::OtherForm { rows, width };
                    return self.fail_item(at, reason, call);
                }
            }
        }
        if tracked.settled.is_some() {
            return;
        }
        let joined = tracked.read.is_some();
        match &tracked.item.offer {
            Offer::None if tracked.item.local_input => {}
            Offer::None if save_pending => self.await_it(at, None, call),
            // An engine that ran it all the same would end in an assertion.
            Offer::None => self.resolve(at, Trouble::Terminal, Reason::NowhereToBeHad, call),
            Offer::Invalid(error) => {
                let reason = Reason::Invalid(error.clone());
                self.resolve(at, Trouble::Terminal, reason, call);
            }
            Offer::Remote(_) if joined => {}
            Offer::Remote(wanted) => match self.allowlist.check(&wanted.source) {
                Verdict::Refused(refusal) => self.refuse(at, refusal, call),
                Verdict::Allowed => {
                    let wanted = (!save_pending).then(|| wanted.clone());
                    self.await_it(at, wanted, call);
                }
            },
        }
    }

    /// The item waits: for a read of this, or for the local save that is under way.
    fn await_it(&mut self, at: ItemRef, read: Option<Wanted>, call: &mut Call<'_>) {
        let read = read.map(|wanted| self.reads.join(&wanted, at));
        if let Some(tracked) = self.requests.item_mut(at) {
            tracked.for_save = read.is_none();
            tracked.read = read;
        }
        self.begin_waiting(at, call.now);
    }

    pub(super) fn refuse(&mut self, at: ItemRef, refusal: Refusal, call: &mut Call<'_>) {
        self.say_refused(&refusal);
        self.resolve(at, Trouble::Terminal, Reason::Refused(refusal), call);
    }

    /// A request whose items are together larger than the region is not kept waiting for what cannot
    /// come: it does without entries that it could use but need not, then the largest of its missing
    /// items that the engine can encode fall back, and if that is not enough it fails.
    fn fall_back_until_it_fits(&mut self, key: RequestKey, call: &mut Call<'_>) {
        let region = call.cache.usage().total;
        loop {
            let Some(request) = self.requests.get(key) else { return };
            let mut needed = 0_u64;
            let mut largest: Option<(bool, u32, ItemRef)> = None;
            let mut spare: Option<ItemRef> = None;
            for (index, tracked) in request.items.iter().enumerate() {
                if let Some(entry) = tracked.pin.and_then(|pin| call.cache.entry(pin)) {
                    needed += u64::from(entry.blocks());
                    if tracked.may_be_encoded() {
                        spare = key.item(index);
                    }
                } else if let Offer::Remote(wanted) = &tracked.item.offer
                    && tracked.waits()
                {
                    needed += u64::from(wanted.blocks);
                    let at = key.item(index);
                    let this = at.map(|at| (tracked.item.local_input, wanted.blocks, at));
                    largest = largest.max(this);
                }
            }
            let Some((_, _, at)) = largest else { return };
            if needed <= u64::from(region) {
                return;
            }
            if let Some(at) = spare {
                self.unpin(at, call);
                continue;
            }
            let reason = Reason::NeverFits { needed, region };
            self.resolve(at, Trouble::Terminal, reason, call);
        }
    }

    /// Sums up what the items' states mean for the request, and for which numbers of computed tokens
    /// that holds.
    fn conclude(&mut self, key: RequestKey) {
        let queued = self.room.is_queued(key);
        let Some(request) = self.requests.get_mut(key) else { return };
        request.dirty = false;
        if request.decision == Decision::Unavailable {
            request.holds = (0, u32::MAX);
            return;
        }
        let mut holds = (0, u32::MAX);
        let (mut waits, mut falls_back, mut pinned, mut for_save) = (false, false, false, false);
        for tracked in &request.items {
            let end = tracked.item.end;
            if end <= request.computed {
                holds.0 = holds.0.max(end);
                continue;
            }
            holds.1 = holds.1.min(end);
            pinned |= tracked.pin.is_some();
            waits |= tracked.waits();
            for_save |= tracked.for_save;
            falls_back |=
                tracked.pin.is_none() && matches!(tracked.settled, Some(Settled::Fallback(_)));
        }
        request.holds = holds;
        request.watches = queued || for_save;
        request.decision = match (waits, falls_back) {
            (true, _) => Decision::Wait,
            (false, true) => Decision::Fallback,
            (false, false) => Decision::Ready,
        };
        request.told &= !waits;
        if pinned && !request.told {
            self.room.hold(key);
        } else {
            self.room.unhold(key);
        }
    }
}
