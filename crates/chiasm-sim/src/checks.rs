//! The promises, held against a node after every step of it, and against the fleet when it is at rest.

use std::time::Duration;

use chiasm_core::admission::Verdict;
use chiasm_core::cache::EntryState;

use crate::content::{OTHER, word};
use crate::engine::Phase;
use crate::memory::blocks_of;
use crate::node::output_bytes;
use crate::violation::{Promise, Step, broken, ensure};
use crate::world::World;

impl World {
    /// Everything that must hold for a node between two inputs.
    pub(crate) fn check(&mut self, number: usize) -> Step {
        if !self.setup.checks {
            return Ok(());
        }
        self.check_books(number)?;
        self.check_contents(number)?;
        self.check_pins(number)?;
        self.check_bounds(number)?;
        self.check_waits(number)
    }

    /// S4, and that nobody's books contradict themselves.
    fn check_books(&self, number: usize) -> Step {
        let instance = &self.nodes[number].instance;
        let says = |promise, found: Result<(), String>| {
            found.map_err(|what| broken(promise, format!("node {number}: {what}")))
        };
        says(Promise::S4, instance.cache().check())?;
        says(Promise::S6, instance.admission().check(instance.cache()))
    }

    /// S2 and S3: what is ready holds what its hash stands for.
    fn check_contents(&self, number: usize) -> Step {
        let node = &self.nodes[number];
        for (key, entry) in node.instance.cache().entries() {
            if entry.state() != EntryState::Ready {
                continue;
            }
            let Some(content) = self.catalogue.number_of(entry.hash().as_str()) else { continue };
            let content = self.catalogue.content(content);
            for (at, block) in blocks_of(entry.extents()).enumerate() {
                let found = node.memory.read(block);
                ensure(found == node.expected(key, content, at), Promise::S3, || {
                    format!(
                        "node {number}: {} ({key}) is ready and block {at} of it holds {}",
                        entry.hash(),
                        self.name_of(found)
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Whose block a word is, for the message.
    fn name_of(&self, found: u64) -> String {
        let known = (0..self.catalogue.len()).find_map(|content| {
            let blocks = self.catalogue.content(content).blocks as usize;
            let mut words = (0..blocks).flat_map(|at| [(at, content), (at, content + OTHER)]);
            let (at, whose) = words.find(|(at, whose)| word(*whose, *at) == found)?;
            let other = if whose == content { "" } else { ", as another encoder has it" };
            Some(format!("block {at} of {}{other}", self.catalogue.content(content).hash))
        });
        known.unwrap_or_else(|| "nothing that was saved".to_owned())
    }

    /// S8: grants are exactly those of the protocol's rules, and each pin has its reason.
    fn check_pins(&self, number: usize) -> Step {
        let node = &self.nodes[number];
        let now = self.time();
        let grants = node.instance.producer().live_grants();
        ensure(grants == node.grants.live(), Promise::S8, || {
            format!(
                "node {number} holds {grants} grants, {} follow from its messages",
                node.grants.live()
            )
        })?;
        let pins: u64 = node.instance.cache().entries().map(|(_, it)| u64::from(it.pins())).sum();
        let loads = node.instance.dispatches().outstanding().loads;
        let mut promised = 0;
        for job in node.engine.jobs.iter().filter(|job| job.tracked) {
            promised +=
                node.instance.report(now, &job.id).filter(|item| item.entry.is_some()).count();
        }
        let reasons = (grants + loads + promised) as u64;
        ensure(pins == reasons, Promise::S8, || {
            format!(
                "node {number}: {pins} pins for {grants} grants, {loads} loads, {promised} items"
            )
        })?;
        // A deadline that has passed was acted upon.
        let due = node.instance.poll_timeout();
        ensure(due > now, Promise::S8, || format!("node {number}: due at {due:?} and not done"))
    }

    /// S7: queues stay in their bounds.
    fn check_bounds(&self, number: usize) -> Step {
        let node = &self.nodes[number];
        let limit = output_bytes(&self.setup);
        let queued = node.router.queued_bytes();
        ensure(queued <= limit, Promise::S7, || {
            format!("node {number} has {queued} bytes queued for its peers, at most {limit}")
        })?;
        for (endpoint, link) in &node.links {
            let held = link.link.connection().map_or(0, chiasm_zmtp::Connection::memory_bytes);
            // A message of the largest size that is let in, what is queued, and the commands' room.
            let limit = self.setup.max_output_bytes + (21 << 20);
            ensure(held <= limit, Promise::S7, || {
                format!("node {number}: the link to {endpoint} holds {held} bytes")
            })?;
        }
        let tracked = node.instance.admission().tracked_requests();
        ensure(tracked <= self.setup.max_requests, Promise::S7, || {
            format!("node {number} tracks {tracked} requests, at most {}", self.setup.max_requests)
        })
    }

    /// S5: nobody waits for longer than the budget, by the simulator's own clock.
    fn check_waits(&mut self, number: usize) -> Step {
        let (now, at) = (self.time(), self.now);
        let budget = self.setup.wait_budget;
        let node = &mut self.nodes[number];
        for job in &mut node.engine.jobs {
            if job.phase != Phase::Waiting || !job.asked {
                continue;
            }
            for (item, since) in node.instance.report(now, &job.id).zip(&mut job.since) {
                match item.verdict {
                    Verdict::Waiting => {
                        let waited = Duration::from_nanos(at - *since.get_or_insert(at));
                        ensure(waited <= budget, Promise::S5, || {
                            format!(
                                "node {number}: {} has waited {waited:?} for {}",
                                job.id, item.hash
                            )
                        })?;
                    }
                    // It may be lost to an older request, and the clock goes on.
                    Verdict::Ready => {}
                    _ => *since = None,
                }
            }
        }
        Ok(())
    }

    /// Nothing is under way any more: nothing is held either (S4), and nothing is due.
    pub(crate) fn check_rest(&self) -> Step {
        for node in &self.nodes {
            let (number, instance) = (node.number, &node.instance);
            let held = [
                ("requests", instance.admission().tracked_requests()),
                ("reads", instance.admission().live_reads()),
                ("transfers", instance.consumer().live_transfers()),
                ("grants", instance.producer().live_grants()),
                ("saves", instance.dispatches().outstanding().saves),
                ("lost saves", instance.dispatches().outstanding().lost_saves),
                ("loads", instance.dispatches().outstanding().loads),
                (
                    "reserved blocks",
                    usize::try_from(instance.admission().reserved_blocks()).unwrap_or(1),
                ),
                ("held entries", usize::from(instance.cache().has_held_entries())),
                ("jobs", node.engine.jobs.len()),
                ("data streams", node.serves.len()),
                ("links", node.links.len()),
                ("control connections", node.router.open()),
            ];
            for (what, count) in held {
                ensure(count == 0, Promise::S4, || {
                    format!("node {number} still has {count} {what} when all is over")
                })?;
            }
        }
        Ok(())
    }
}
