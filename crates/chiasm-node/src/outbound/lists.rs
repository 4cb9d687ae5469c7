//! Descriptor lists of upstream producers, read in slices: that of a large region is 14 MB, and the core
//! must not be locked, nor the node's thread be away, for as long as that takes.
//!
//! Messages of one producer stay in order: what comes behind a list waits for it.

use std::collections::{BTreeMap, VecDeque};

use chiasm_core::endpoint::Endpoint;
use chiasm_core::limits::MAX_BYTES_SCANNED_INLINE;
use chiasm_core::wire::{AckLimits, MemDescError, Progression, ProgressionScan, XferAck};

/// Rows that are read at once: some 250 us.
const ROWS_PER_SLICE: u32 = 16 << 10;

/// A message that was put off.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) payload: Vec<u8>,
    /// What its list was found to be, if it has one.
    pub(super) region: Option<Result<Progression, MemDescError>>,
}

/// Messages that can be taken now, in order.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) endpoint: Endpoint,
    pub(super) messages: Vec<Message>,
}

#[derive(Debug)]
struct Waiting {
    payload: Vec<u8>,
    scan: Option<Scan>,
}

#[derive(Debug)]
struct Scan {
    /// Where in the payload the list is.
    start: usize,
    end: usize,
    rows: ProgressionScan,
}

/// What is put off, by producer. Bounded by what a link may hold: a message of 20 MB at once, and what its
/// producer has sent of the next.
#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<Endpoint, VecDeque<Waiting>>);

impl Lists {
    /// Gives the message back if it need not wait.
    pub(super) fn put_off(
        &mut self,
        endpoint: &Endpoint,
        payload: Vec<u8>,
        limits: AckLimits,
    ) -> Option<Vec<u8>> {
        let scan = scan_of(&payload, limits);
        if scan.is_none() && !self.0.contains_key(endpoint) {
            return Some(payload);
        }
        self.0.entry(endpoint.clone()).or_default().push_back(Waiting { payload, scan });
        None
    }

    /// Reads one slice of one list; the messages that can be taken then.
    pub(super) fn progress(&mut self) -> Option<Scanned> {
        let mut entry = self.0.first_entry()?;
        let endpoint = entry.key().clone();
        let waiting = entry.get_mut();
        let mut messages = Vec::new();
        while let Some(Waiting { payload, scan }) = waiting.front_mut() {
            let region = match scan {
                None => None,
                // One list at a time.
                Some(_) if !messages.is_empty() => break,
                Some(Scan { start, end, rows }) => {
                    let list = payload.get(*start..*end).unwrap_or_default();
                    match rows.advance(list, ROWS_PER_SLICE) {
                        Ok(None) => return None,
                        Ok(Some(region)) => Some(Ok(region)),
                        Err(error) => Some(Err(error)),
                    }
                }
            };
            let payload = std::mem::take(payload);
            waiting.pop_front();
            messages.push(Message { payload, region });
        }
        if waiting.is_empty() {
            entry.remove();
        }
        Some(Scanned { endpoint, messages })
    }

    pub(super) fn has_work(&self) -> bool {
        !self.0.is_empty()
    }

    /// The connection is gone: what it brought answers nothing any more.
    pub(super) fn leave(&mut self, endpoint: &Endpoint) {
        self.0.remove(endpoint);
    }
}

/// The scan of a message's list, if it has a large one. Anything else is the core's to judge.
fn scan_of(payload: &[u8], limits: AckLimits) -> Option<Scan> {
    if payload.len() <= MAX_BYTES_SCANNED_INLINE {
        return None;
    }
    let ack = XferAck::decode(payload, &limits).ok()?;
    let list = ack.mem_descriptor;
    if ack.chiasm.is_some() || list.len() <= MAX_BYTES_SCANNED_INLINE {
        return None;
    }
    // It borrows from the payload.
    let start = list.as_ptr().addr().checked_sub(payload.as_ptr().addr())?;
    let end = start.checked_add(list.len())?;
    let rows = ProgressionScan::new(list, u32::MAX).ok()?;
    Some(Scan { start, end, rows })
}

#[cfg(test)]
mod tests {
    use chiasm_core::wire::AckStatus;

    use super::*;

    const LIMITS: AckLimits = AckLimits { max_blocks: 16 };

    fn ack(hash: &str, list: &[u8]) -> Vec<u8> {
        XferAck { mem_descriptor: list, ..XferAck::bare(hash, AckStatus::Ok) }.encode()
    }

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::parse(&format!("10.0.0.1:{port}")).unwrap()
    }

    #[test]
    fn a_large_list_is_read_in_slices_and_what_comes_behind_it_waits() {
        let region = Progression::new(0x7f00_0000_0000, 64, 64, 100_000, 0).unwrap();
        let small = ack("small", &Progression::new(1, 1, 1, 2, 0).unwrap().encode());
        let mut lists = Lists::default();
        assert_eq!(lists.put_off(&endpoint(1), small.clone(), LIMITS), Some(small.clone()));
        assert_eq!(lists.put_off(&endpoint(1), ack("large", &region.encode()), LIMITS), None);
        assert_eq!(lists.put_off(&endpoint(1), small.clone(), LIMITS), None, "in order");
        assert_eq!(lists.put_off(&endpoint(2), small.clone(), LIMITS), Some(small.clone()));
        let mut slices = 1;
        let scanned = loop {
            match lists.progress() {
                Some(scanned) => break scanned,
                None => slices += 1,
            }
        };
        assert_eq!(slices, 7);
        assert_eq!(scanned.endpoint, endpoint(1));
        assert_eq!(scanned.messages.len(), 2);
        assert_eq!(scanned.messages[0].region, Some(Ok(region)));
        assert_eq!((&scanned.messages[1].payload, &scanned.messages[1].region), (&small, &None));
        assert!(!lists.has_work());
    }

    #[test]
    fn a_list_that_is_none_is_found_out_and_a_lost_link_forgets_all() {
        let mut broken = Progression::new(1 << 40, 64, 64, 100_000, 0).unwrap().encode();
        let last = broken.len() - 1;
        broken[last] = 0xc0;
        let mut lists = Lists::default();
        assert_eq!(lists.put_off(&endpoint(1), ack("h", &broken), LIMITS), None);
        let scanned = std::iter::repeat_with(|| lists.progress()).flatten().next().unwrap();
        assert!(matches!(scanned.messages[0].region, Some(Err(_))));
        assert_eq!(lists.put_off(&endpoint(1), ack("h", &broken), LIMITS), None);
        lists.leave(&endpoint(1));
        assert!(!lists.has_work());
        let garbage = vec![0xc1; 100_000];
        assert_eq!(lists.put_off(&endpoint(1), garbage.clone(), LIMITS), Some(garbage));
    }

    /// It would be eight bytes of memory for each byte that came.
    #[test]
    fn a_list_of_more_blocks_than_there_are_is_not_read_at_all() {
        let region = Progression::new(0x7f00_0000_0000, 64, 64, 100_000, 0).unwrap().encode();
        let src_block_indices = vec![0; LIMITS.max_blocks + 1];
        let whole = XferAck {
            src_block_indices,
            mem_descriptor: &region,
            ..XferAck::bare("h", AckStatus::Ok)
        };
        let bytes = whole.encode();
        let mut lists = Lists::default();
        assert_eq!(lists.put_off(&endpoint(1), bytes.clone(), LIMITS), Some(bytes));
    }
}
