//! From what an operator has set to what a node is told.
//!
//! Every setting that concerns a node is taken over here and nowhere else. It decides nothing and
//! checks nothing: that is done by [`Config::read`] and by [`Node::start`](crate::Node::start).

use chiasm_core::allowlist::Allowlist;
use chiasm_core::config::{Config, SideChannel};
use chiasm_core::identity::Identity;
use chiasm_core::plane::PlaneList;

use crate::config::NodeConfig;

impl NodeConfig {
    /// The node of an instance that was configured so. Its workers find it by `region_name`.
    ///
    /// An instance that does not read has an empty allowlist, whatever was set; one that neither
    /// reads nor serves has no planes.
    #[must_use]
    pub fn of_operator(config: &Config, identity: Identity, region_name: &str) -> Self {
        let channel = config.side_channel.as_ref();
        let listen = channel.and_then(SideChannel::listen);
        let moves_bytes = config.reads() || listen.is_some();
        let (planes, required_planes) = if moves_bytes {
            (config.planes.value.list(), config.planes.value.required())
        } else {
            (PlaneList::EMPTY, PlaneList::EMPTY)
        };
        Self {
            region_name: Some(region_name.to_owned()),
            identity,
            advertise: listen.as_ref().and(config.advertise_host.value.clone()),
            listen,
            allowed: if config.reads() {
                config.allowed_peers.value.clone()
            } else {
                Allowlist::default()
            },
            planes,
            required_planes,
            verify: config.verify.value,
            lease: config.lease.value,
            connect_timeout: config.connect_timeout.value,
            ack_timeout: config.ack_timeout.value,
            read_timeout: config.read_timeout.value,
            save_timeout: config.save_timeout.value,
            quarantine: config.quarantine.value,
            wait_budget: config.wait_budget.value,
            status: true,
            ..Self::new(config.region_bytes.value.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chiasm_core::config::Facts;
    use chiasm_core::plane::Plane;
    use serde_json::{Value, json};

    use super::*;

    fn node_config(role: &str, extra: &Value) -> NodeConfig {
        let value = json!({
            "ec_connector": "ChiasmConnector",
            "ec_role": role,
            "engine_id": "e0",
            "ec_connector_extra_config": extra,
        });
        let facts = Facts { data_parallel_index: 2, host_address: Some("10.0.0.5") };
        let port = |name: &str| (name == "VLLM_EC_SIDE_CHANNEL_PORT").then(|| "5601".to_owned());
        let config = Config::read(&value, &port, &facts).unwrap();
        NodeConfig::of_operator(&config, Identity::default(), "chiasm-e0_dp2")
    }

    /// Every setting has another value than its default, so one that is forgotten shows.
    #[test]
    fn every_setting_of_the_operator_reaches_the_node() {
        let config = node_config(
            "ec_both",
            &json!({
                "ec_cpu_bytes": 1 << 20, "ec_remote": true, "ec_verify": false,
                "ec_allowed_peers": ["10.0.0.9:5601"], "ec_planes": ["tcp required", "shm"],
                "ec_advertise_host": "vision-0.example", "pin_lease_s": 31, "connect_timeout_s": 4,
                "consumer_ack_timeout_s": 32, "read_timeout_s": 21, "save_timeout_s": 61,
                "quarantine_s": 62, "wait_budget_s": 63,
            }),
        );
        let seconds = Duration::from_secs;
        assert_eq!(config.region_bytes, 1 << 20);
        assert_eq!(config.region_name.as_deref(), Some("chiasm-e0_dp2"));
        assert_eq!(config.listen.map(|listen| listen.to_string()).unwrap(), "10.0.0.5:5603");
        assert_eq!(config.advertise.unwrap().to_string(), "vision-0.example");
        assert_eq!(config.allowed.len(), 1);
        assert_eq!(config.planes.iter().collect::<Vec<_>>(), [Plane::Tcp, Plane::Shm]);
        assert_eq!(config.required_planes.iter().collect::<Vec<_>>(), [Plane::Tcp]);
        assert!(!config.verify && config.status);
        assert_eq!((config.lease, config.connect_timeout), (seconds(31), seconds(4)));
        assert_eq!(config.upstream_lease, seconds(30), "is nobody's to set");
        assert_eq!((config.ack_timeout, config.read_timeout), (seconds(32), seconds(21)));
        assert_eq!((config.save_timeout, config.quarantine), (seconds(61), seconds(62)));
        assert_eq!(config.wait_budget, seconds(63));
    }

    #[test]
    fn a_producer_reads_from_nobody_and_a_consumer_serves_nobody() {
        let extra = json!({
            "ec_cpu_bytes": "1MiB", "ec_remote": true, "ec_allowed_peers": ["10.0.0.9:5601"],
            "ec_advertise_host": "vision-0.example",
        });
        let producer = node_config("ec_producer", &extra);
        assert!(producer.listen.is_some() && producer.allowed.is_empty());
        let consumer = node_config("ec_consumer", &extra);
        assert_eq!((consumer.listen, consumer.advertise, consumer.allowed.len()), (None, None, 1));
        assert!(!consumer.planes.is_empty());
    }

    #[test]
    fn local_offload_alone_has_no_socket_no_plane_and_no_peer() {
        let extra = json!({ "ec_cpu_bytes": "1MiB", "ec_allowed_peers": ["10.0.0.9:5601"] });
        let config = node_config("ec_both", &extra);
        assert!(config.listen.is_none() && config.planes.is_empty() && config.allowed.is_empty());
    }
}
