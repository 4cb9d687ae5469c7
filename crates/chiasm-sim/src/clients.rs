//! Clients: they have items encoded, and hand the announcements on to a consumer, as they got them or
//! spoilt. An announcement goes through its JSON, as it does in the product.

use chiasm_core::admission::Item;
use chiasm_core::announcement::{
    Announcement, AnnouncementError, Expectation, OutgoingAnnouncement, RemoteAnnouncement,
};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use serde_json::{Map, Value, json};

use crate::engine::{Job, JobItem, Phase};
use crate::fault::Fault;
use crate::node::endpoint_of;
use crate::plan::PlannedItem;
use crate::queue::Event;
use crate::violation::Step;
use crate::world::World;

/// Tokens of one item.
const ITEM_TOKENS: u32 = 16;

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) consumer: usize,
    pub(crate) items: Vec<PlannedItem>,
    pub(crate) announcements: Vec<Option<Value>>,
    pub(crate) abort_after: Option<u64>,
    pub(crate) probe: bool,
}

impl World {
    /// A client sends its items to the encoders.
    pub(crate) fn send_request(&mut self, request: Request) {
        let number = self.requests.len();
        self.requests.push(request);
        let (low, high) = self.setup.encode;
        let when = self.now + self.latency() + self.random.skewed(low, high);
        self.push(when, Event::Encode { request: number });
    }

    /// The encoders have a request's items, and answer with announcements.
    pub(crate) fn encode(&mut self, number: usize) -> Step {
        let items = self.requests[number].items.clone();
        let consumer = self.requests[number].consumer;
        let mut announcements = Vec::with_capacity(items.len());
        for item in &items {
            let announced = self.announce(item, consumer)?;
            announcements.push(announced);
        }
        let request = &mut self.requests[number];
        request.announcements = announcements;
        let when = self.now + self.random.skewed(500_000, 200_000_000);
        self.push(when, Event::Arrive { request: number });
        Ok(())
    }

    /// Has one item encoded; its value in `ec_transfer_params`.
    fn announce(&mut self, item: &PlannedItem, consumer: usize) -> Step<Option<Value>> {
        let encoder = item.encoder;
        let content = self.catalogue.content(item.entry).clone();
        let node = &self.nodes[encoder];
        let answers = node.up && node.paused_until <= self.now;
        let stale = item.lie == Some(Fault::Stale);
        if !stale {
            if !answers {
                return Ok(None);
            }
            let there = node.instance.cache().find(content.hash.as_str()).is_some();
            let there = there || self.save(encoder, item.entry)?;
            self.settle(encoder)?;
            if !there || encoder == consumer {
                return Ok(None);
            }
        }
        let meta = match item.lie {
            Some(Fault::WrongRows) => other_form(content.meta, 1, 0),
            Some(Fault::WrongWidth) => other_form(content.meta, 0, 4),
            Some(Fault::TooLarge) => other_form(content.meta, 100_000, 0),
            _ => content.meta,
        };
        let block_size_bytes = self.catalogue.block_size_bytes();
        let remote = RemoteAnnouncement::of_entry(endpoint_of(encoder), &meta, block_size_bytes);
        let Some(remote) = remote else { return Ok(None) };
        let announcement = OutgoingAnnouncement::new("image", 0).with_entry(remote, Map::new());
        let mut value = announcement.to_json();
        if let Some(lie) = item.lie {
            self.fired(lie);
            match lie {
                Fault::NotAnnounced => return Ok(None),
                Fault::Unapproved => value["peer_host"] = json!("10.99.0.1"),
                Fault::Garbage => self.spoil(&mut value),
                _ => {}
            }
        }
        Ok(Some(value))
    }

    fn spoil(&mut self, value: &mut Value) {
        let spoilt = [
            ("peer_host", json!("bad host!")),
            ("peer_host", json!("0x0a000001")),
            ("peer_host", Value::Null),
            ("peer_port", json!(70_000)),
            ("peer_port", json!("5601")),
            ("peer_port", json!(-1)),
            ("peer_port", Value::Null),
            ("", json!("no object")),
            ("", json!(7)),
            ("size_bytes", json!(0)),
            ("size_bytes", json!(1u64 << 60)),
            ("shape", json!([1, 2, 3])),
            ("shape", json!([0, 4])),
            ("shape", json!("x")),
        ];
        if let Some((field, spoilt)) = self.random.pick(&spoilt).cloned() {
            if field.is_empty() {
                *value = spoilt;
            } else if let (Value::Null, "peer_port", Some(fields)) =
                (&spoilt, field, value.as_object_mut())
            {
                fields.remove(field);
            } else {
                value[field] = spoilt;
            }
        }
    }

    /// A request reaches its consumer.
    pub(crate) fn arrive(&mut self, number: usize) {
        let request = &self.requests[number];
        let (consumer, probe) = (request.consumer, request.probe);
        let (planned, abort_after) = (request.items.clone(), request.abort_after);
        let announcements = request.announcements.clone();
        self.stats.requests += 1;
        if !self.nodes[consumer].up {
            self.stats.lost += 1;
            return;
        }
        let mut items = Vec::new();
        let mut end = 0;
        for (item, announced) in planned.iter().zip(&announcements) {
            end += ITEM_TOKENS;
            let parsed = announced.as_ref().map(Announcement::parse);
            let local_input = item.local_input;
            let made = self.item(consumer, item.entry, end, local_input, parsed.as_ref());
            items.push(JobItem { entry: item.entry, item: made });
        }
        let job = Job {
            id: format!("r{number}"),
            request: number,
            since: vec![None; items.len()],
            items,
            computed: 0,
            tokens: end + 4,
            phase: Phase::Waiting,
            tracked: false,
            asked: false,
            told_unavailable: false,
            outgrown: false,
            arrived: 0,
            probe,
            dispatches: Vec::new(),
        };
        self.note("arrive", &[consumer as u64, number as u64]);
        self.add_job(consumer, job);
        if let Some(after) = abort_after {
            self.push(self.now + after, Event::Abort { request: number });
        }
    }

    fn item(
        &mut self,
        consumer: usize,
        entry: usize,
        end: u32,
        local_input: bool,
        announced: Option<&Result<Announcement, AnnouncementError>>,
    ) -> Item {
        let content = self.catalogue.content(entry).clone();
        // What an engine knows beforehand differs from model to model.
        let (knows_rows, knows_width) = (self.random.chance(500), self.random.chance(500));
        let expected = Expectation {
            rows: knows_rows.then_some(content.meta.rows),
            width: knows_width.then_some(content.meta.width),
            dtype: self.random.chance(800).then_some(Dtype::Float16),
            block_size_bytes: self.catalogue.block_size_bytes(),
            region_blocks: self.nodes[consumer].setup.blocks,
        };
        Item::new(content.hash, end, local_input, announced, &expected)
    }

    /// An item that the engine can encode itself and that nobody has announced.
    pub(crate) fn local_item(&mut self, entry: usize, end: u32) -> Item {
        self.item(0, entry, end, true, None)
    }
}

fn other_form(meta: EntryMeta, rows: u32, width: u32) -> EntryMeta {
    EntryMeta::new(meta.rows + rows, meta.width + width, Dtype::Float16).unwrap_or(meta)
}
