//! The reference page, written from the table.

use std::fmt::Write as _;

use super::key::{Fallback, Key, Kind, Place};
use super::table::KEYS;

/// A configuration to start from: variables and the object of `--ec-transfer-config`.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Variables and their values.
    pub variables: &'static [(&'static str, &'static str)],
    /// The object, as JSON.
    pub transfer_config: &'static str,
}

/// A producer whose endpoint is 10.0.0.5:5601 at every start.
pub const PRODUCER_EXAMPLE: Example = Example {
    variables: &[("VLLM_EC_SIDE_CHANNEL_HOST", "10.0.0.5"), ("VLLM_EC_SIDE_CHANNEL_PORT", "5601")],
    transfer_config: r#"{"ec_connector": "ChiasmConnector",
 "ec_connector_module_path": "chiasm.vllm",
 "ec_role": "ec_producer",
 "engine_id": "encoder-0",
 "ec_connector_extra_config": {
   "ec_cpu_bytes": "4GiB",
   "ec_remote": true}}"#,
};

/// A consumer that may read from it.
pub const CONSUMER_EXAMPLE: Example = Example {
    variables: &[],
    transfer_config: r#"{"ec_connector": "ChiasmConnector",
 "ec_connector_module_path": "chiasm.vllm",
 "ec_role": "ec_consumer",
 "engine_id": "decode-0",
 "ec_connector_extra_config": {
   "ec_cpu_bytes": "4GiB",
   "ec_remote": true,
   "ec_allowed_peers": ["10.0.0.5:5601"]}}"#,
};

impl Example {
    /// As a shell takes it, for a command line that ends in `--ec-transfer-config`.
    #[must_use]
    pub fn shell(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.variables {
            text.extend(["export ", name, "=", value, "\n"]);
        }
        text + "vllm serve MODEL --ec-transfer-config '" + self.transfer_config + "'\n"
    }
}

const HEAD: &str = "\
<!-- Written by `chiasm config reference` from crates/chiasm-core/src/config/table.rs. Change that. -->

# Configuration

Chiasm is set up where vLLM's own connector is: in the object of `--ec-transfer-config`, and by two
environment variables. The keys of vLLM's `ECCPUConnector` work unchanged.

`chiasm config check FILE` reads such an object, or its `ec_connector_extra_config` alone, and prints
every effective value with its source. An instance does the same at its start. All problems are told
at once, and an instance with a problem does not start. The command also warns of what the machine that
it runs on lacks (required planes, NIXL and its interfaces where keys for them are set, room in `/dev/shm`),
and ends with 2 where the object names another connector than Chiasm's.

- A key that starts like one of these (`ec_`, `consumer_`, `read_`, ...), or is within two edits of
  one, and is none, is an error: a misspelt allowlist is never ignored. Any other unknown key in
  `ec_connector_extra_config` is a warning, because others may keep settings there.
- A released key or variable is deprecated, with a warning, for one minor release before it goes.

## To start from

Producers that others read from have their ports pinned, so that an allowlist can name them. Both
listen and read within the network that you trust: see [SECURITY.md](../SECURITY.md).

A producer, reachable from the network at 10.0.0.5:5601:

```sh
";

const RULES: &str = "
## What holds between settings

- `pin_lease_s` is more than `read_timeout_s`, and `quarantine_s` is not less than it: errors.
- `connect_timeout_s`, `consumer_ack_timeout_s` or `read_timeout_s` that are not less than
  `wait_budget_s` leave no time for a retry: a warning.
- Two names of one setting that say different things are an error.
- The port of an instance is `VLLM_EC_SIDE_CHANNEL_PORT` plus its data-parallel index; past 65535 it
  is an error. One in use is an error at the start.
- The two `VLLM_EC_SIDE_CHANNEL` variables matter to an instance that serves: `ec_producer` or
  `ec_both` with `ec_remote`. Elsewhere a wrong one is a warning.
- An `ec_connector` that is not `ChiasmConnector`, or an `ec_connector_module_path` that is missing or
  not `chiasm.vllm`: a warning, since the settings are then not in force, or vLLM does not start.
- A consumer with `ec_remote` and an empty `ec_allowed_peers` reads from nobody: a warning. So is an
  allowlist without `ec_remote`, and one on a producer, where it restricts nobody.
";

/// The reference page, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned() + &PRODUCER_EXAMPLE.shell();
    page += "```\n\nA consumer that may read from it, and from nobody else:\n\n```sh\n";
    page += &CONSUMER_EXAMPLE.shell();
    page += "```\n";
    section(&mut page, "In `ec_connector_extra_config`", Place::ExtraConfig);
    section(&mut page, "In the environment", Place::Environment);
    section(&mut page, "Around it, in `--ec-transfer-config`", Place::TransferConfig);
    page + RULES
}

fn section(page: &mut String, title: &str, place: Place) {
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "\n## {title}\n\n| | default | allowed | example | since |\n|---|---|---|---|---|\n"
    );
    for key in KEYS.iter().filter(|key| key.place == place) {
        row(page, key);
    }
}

fn row(page: &mut String, key: &Key) {
    let names: Vec<_> = key.names().map(|name| format!("`{name}`")).collect();
    let default = match key.fallback {
        Fallback::Required => "**required**".to_owned(),
        Fallback::Value(value) => format!("`{value}`"),
        Fallback::Described(words) => words.to_owned(),
    };
    let allowed = if key.kind == Kind::Unread { String::new() } else { key.allowed() };
    let _ = writeln!(
        page,
        "| {}<br>{} | {default} | {allowed} | `{}` | {} |",
        names.join(", "),
        key.meaning,
        key.example,
        key.since
    );
}
