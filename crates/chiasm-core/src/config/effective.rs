//! The effective values by name, to be shown.

use std::time::Duration;

use serde_json::Value;

use super::Config;
use super::setting::{Setting, Source};
use super::value::in_seconds;

/// One effective value.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    /// The setting, by the name that the reference page has for it.
    pub name: &'static str,
    /// The value for machines: bytes, seconds, booleans and ports as they are, the rest as texts.
    /// `null` where nothing is set and the default is no one value.
    pub value: Value,
    /// The value for people.
    pub text: String,
    /// Where it came from.
    pub source: Source,
}

/// Endpoints that are listed for people; machines see all of them.
const LISTED_PEERS: usize = 8;

impl Config {
    /// Every effective value, in the order of the reference page.
    #[must_use]
    pub fn effective(&self) -> Vec<Effective> {
        let mut rows = vec![
            optional("ec_role", &self.role, "not known: taken for ec_both"),
            optional("engine_id", &self.engine_id, "random"),
            row("ec_cpu_bytes", &self.region_bytes, |size| (size.0.into(), size.to_string())),
            switch("ec_remote", &self.remote),
            self.peers(),
            row("ec_planes", &self.planes, |planes| {
                let names: Vec<_> = planes.iter().map(|plane| plane.to_string()).collect();
                (names.clone().into(), names.join(", "))
            }),
            optional("ec_nixl_library", &self.nixl.library, "looked for"),
            row("ec_nixl_backend", &self.nixl.backend, |backend| {
                (backend.name().into(), backend.to_string())
            }),
            optional("ec_nixl_interfaces", &self.nixl.interfaces, "all of them"),
            optional("ec_nixl_ports", &self.nixl.ports, "any"),
        ];
        if let Some(channel) = &self.side_channel {
            rows.push(optional(
                "VLLM_EC_SIDE_CHANNEL_HOST",
                &channel.host,
                "the address that the engine finds",
            ));
            rows.push(row("VLLM_EC_SIDE_CHANNEL_PORT", &channel.port, |port| {
                let chosen = "0: chosen by the system at every start";
                ((*port).into(), if *port == 0 { chosen.into() } else { port.to_string() })
            }));
            rows.push(optional(
                "ec_advertise_host",
                &self.advertise_host,
                "the host that is bound",
            ));
        }
        rows.push(switch("ec_verify", &self.verify));
        rows.extend([
            seconds("consumer_ack_timeout_s", &self.ack_timeout),
            seconds("pin_lease_s", &self.lease),
            seconds("read_timeout_s", &self.read_timeout),
            seconds("quarantine_s", &self.quarantine),
            seconds("wait_budget_s", &self.wait_budget),
            seconds("connect_timeout_s", &self.connect_timeout),
            seconds("save_timeout_s", &self.save_timeout),
        ]);
        rows
    }

    fn peers(&self) -> Effective {
        row("ec_allowed_peers", &self.allowed_peers, |peers| {
            let all: Vec<_> = peers.iter().map(ToString::to_string).collect();
            let mut text = all.iter().take(LISTED_PEERS).map(String::as_str).collect::<Vec<_>>();
            let more = all.len().saturating_sub(LISTED_PEERS);
            let rest = format!("and {more} more");
            text.extend((more > 0).then_some(rest.as_str()));
            let text = if all.is_empty() { "nobody".into() } else { text.join("\n") };
            (all.into(), text)
        })
    }
}

fn row<T>(
    name: &'static str,
    setting: &Setting<T>,
    show: impl FnOnce(&T) -> (Value, String),
) -> Effective {
    let (value, text) = show(&setting.value);
    Effective { name, value, text, source: setting.source }
}

fn switch(name: &'static str, setting: &Setting<bool>) -> Effective {
    row(name, setting, |on| ((*on).into(), on.to_string()))
}

fn seconds(name: &'static str, setting: &Setting<Duration>) -> Effective {
    row(name, setting, |time| {
        let value = in_seconds(*time);
        let text = format!("{value} s");
        (value, text)
    })
}

fn optional<T: ToString>(
    name: &'static str,
    setting: &Setting<Option<T>>,
    absent: &str,
) -> Effective {
    row(name, setting, |value| match value {
        Some(value) => (value.to_string().into(), value.to_string()),
        None => (Value::Null, absent.to_owned()),
    })
}
