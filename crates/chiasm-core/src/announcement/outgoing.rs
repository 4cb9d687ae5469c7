//! The announcement that a producer makes of one encoder output.

use serde_json::{Map, Value, json};

use super::RemoteAnnouncement;

/// What a producer puts under one `mm_hash` of `ec_transfer_params`. Its JSON has exactly the keys
/// that a vLLM producer sends.
#[derive(Clone, Debug, PartialEq)]
pub struct OutgoingAnnouncement {
    modality: String,
    metadata: Map<String, Value>,
    item_indices: Vec<u32>,
    remote: Option<RemoteAnnouncement>,
}

impl OutgoingAnnouncement {
    /// The first item of the request with this `mm_hash`: its modality (`image`, `audio`, `video`)
    /// and its number among the request's items. Without an entry there is no address and the
    /// metadata stays empty, so that nobody rewrites the media away.
    #[must_use]
    pub fn new(modality: &str, item_index: u32) -> Self {
        Self {
            modality: modality.to_owned(),
            metadata: Map::new(),
            item_indices: vec![item_index],
            remote: None,
        }
    }

    /// Adds the entry that this producer holds, and what the model needs to size the placeholder
    /// range without the media.
    #[must_use]
    pub fn with_entry(mut self, remote: RemoteAnnouncement, metadata: Map<String, Value>) -> Self {
        self.remote = Some(remote);
        self.metadata = metadata;
        self
    }

    /// Another item of the same request has the same `mm_hash`: every occurrence is listed.
    pub fn add_item(&mut self, item_index: u32) {
        self.item_indices.push(item_index);
    }

    /// The JSON value. The host stands there without brackets, apart from its port.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "modality": self.modality,
            "metadata": self.metadata,
            "item_indices": self.item_indices,
        });
        if let (Value::Object(fields), Some(remote)) = (&mut value, &self.remote) {
            fields.insert("peer_host".into(), remote.source.host().to_string().into());
            fields.insert("peer_port".into(), remote.source.port().into());
            fields.insert("size_bytes".into(), remote.size_bytes.into());
            fields.insert("shape".into(), json!([remote.rows, remote.width]));
        }
        value
    }
}
