//! Every setting, once. Adding one here makes it known to parsing, messages, help and the reference
//! page; `docs/configuration.md` is written anew with `chiasm config reference`.

use super::key::{Alias, Fallback, Key, Kind, Place};

/// The release that all of the first settings came with.
const FIRST: &str = "0.1.0";

/// Every setting, in the order in which people read them.
pub const KEYS: &[Key] = &[
    extra("ec_cpu_bytes", Kind::Size, "\"4GiB\"")
        .required()
        .meaning("Size of the region in shared memory: `/dev/shm` must have as much free."),
    Key {
        alias: Some(Alias { name: "ec_enable_nixl", deprecated_since: None }),
        ..extra("ec_remote", Kind::Switch, "true").or("false").meaning(
            "Whether encoder outputs are served to, and read from, other instances. \
             `ec_enable_nixl` is the name that vLLM's own connector has for it; either will do.",
        )
    },
    extra("ec_allowed_peers", Kind::Peers, "[\"10.0.0.5:5601\", \"vision-0.example:5601-5608\"]")
        .or("[]")
        .meaning(
            "Producers that this instance may read from; nobody where it is empty. A range stands \
             for at most 1024 ports (one for each data-parallel rank). A name and an address are \
             two endpoints, whatever DNS says: write what the producer announces. It authorises \
             an endpoint; it does not authenticate a peer.",
        ),
    extra("ec_planes", Kind::Planes, "[\"shm\", \"nixl required\", \"tcp\"]")
        .or("[\"shm\", \"nixl\", \"tcp\"]")
        .meaning(
            "Ways of moving bytes, the preferred one first. One that is not available is skipped \
             with a warning; one that is marked `required` is a start-up error then. vLLM's own \
             connector has `nixl` only.",
        ),
    extra("ec_advertise_host", Kind::Host, "\"vision-0.vision.svc.cluster.local\"")
        .described("the host that is bound")
        .meaning("Host that is announced, where it differs from the one that is bound."),
    extra("ec_verify", Kind::Switch, "false").or("true").meaning(
        "Whether the bytes of a read are checked against the digest that the producer took. It \
         finds accidents, not attacks.",
    ),
    extra("ec_nixl_library", Kind::Path, "\"/opt/nvidia/nvda_nixl/lib64\"")
        .described("looked for")
        .meaning(
            "`libnixl_capi.so`, or the directory that has it. Looked for on the loader's path, below \
             `/opt/nvidia/nvda_nixl`, and in the `nixl` package of the Python that runs.",
        ),
    extra("ec_nixl_backend", Kind::NixlBackend, "\"LIBFABRIC\"")
        .or("\"UCX\"")
        .meaning("NIXL's backend. vLLM's own connector has `UCX` only."),
    extra("ec_nixl_interfaces", Kind::Interfaces, "[\"mlx5_0:1\", \"eth0\"]")
        .described("all of them")
        .meaning(
            "Interfaces that UCX may use. It listens on every one of them, on ports of its own, and \
             connects to addresses that approved producers name: `ec_allowed_peers` has no say there.",
        ),
    extra("ec_nixl_ports", Kind::PortRange, "\"42000-42100\"")
        .described("any")
        .meaning("tcp ports that UCX may listen on, for a firewall."),
    extra("consumer_ack_timeout_s", Kind::Seconds, "10")
        .or("30")
        .meaning("How long one attempt waits for the producer's answer."),
    extra("pin_lease_s", Kind::Seconds, "45").or("30").meaning(
        "How long a producer keeps what it has granted unchanged. Must be more than \
         `read_timeout_s`. vLLM's own consumers count on 30 s and get no less.",
    ),
    extra("read_timeout_s", Kind::Seconds, "10").or("20").meaning("How long one read may take."),
    extra("quarantine_s", Kind::Seconds, "120").or("60").meaning(
        "How long the blocks of a save rest whose worker has died: its device may still write into \
         them. What a lost read may still write into rests until that is certain not to happen. Must \
         not be less than `read_timeout_s`.",
    ),
    extra("wait_budget_s", Kind::Seconds, "20").or("60").meaning(
        "How long one item of one request may wait in all, retries included; then it is encoded \
         here, or the request fails.",
    ),
    extra("connect_timeout_s", Kind::Seconds, "1").or("3").meaning(
        "How long a connection attempt may go unanswered. A refused one is known at once.",
    ),
    extra("save_timeout_s", Kind::Seconds, "120")
        .or("60")
        .meaning("How long a worker may take to report a save before it is withdrawn."),
    variable("VLLM_EC_SIDE_CHANNEL_HOST", Kind::Host, "10.0.0.5")
        .described("`VLLM_HOST_IP`, else the address that the engine finds")
        .meaning(
            "Host that a producer with `ec_remote` binds and announces: reachable from the network \
             unless it is `localhost`, which serves this host alone. A wildcard (`*`, `0.0.0.0`, \
             `::`, empty) is an error, whether it was set or found: nobody can connect to it.",
        ),
    variable("VLLM_EC_SIDE_CHANNEL_PORT", Kind::Port, "5601").or("0").meaning(
        "Port of rank 0; rank n has the port n higher. 0: chosen by the system, anew at every \
         start. Where instances read from others, set it, so that `ec_allowed_peers` can name it.",
    ),
    variable("VLLM_HOST_IP", Kind::Host, "10.0.0.5")
        .described("the address that the engine finds")
        .meaning("vLLM's own. Bound where `VLLM_EC_SIDE_CHANNEL_HOST` is not set. Empty: not set."),
    outer("ec_connector", Kind::Engine, "\"ChiasmConnector\"")
        .described("no connector")
        .meaning("Class of the connector."),
    outer("ec_connector_module_path", Kind::Engine, "\"chiasm.vllm\"")
        .described("vLLM's own connectors")
        .meaning("Python module of that class."),
    outer("ec_role", Kind::Role, "\"ec_consumer\"")
        .required()
        .meaning("Whether the instance produces encoder outputs, consumes them, or both."),
    outer("engine_id", Kind::EngineId, "\"encoder-0\"").described("random, logged").meaning(
        "Name of the engine; with `_dp` and the data-parallel index it is the name of its NIXL \
         agent.",
    ),
    outer("ec_connector_extra_config", Kind::ExtraConfig, "{\"ec_cpu_bytes\": \"4GiB\"}")
        .or("{}")
        .meaning("The settings of Chiasm."),
    outer("mm_encoder_output_widths", Kind::Engine, "{}")
        .described("filled by the engine")
        .meaning("Widths of the encoder outputs."),
    unread("ec_buffer_device", "\"cuda\""),
    unread("ec_buffer_size", "1e9"),
    unread("ec_rank", "0"),
    unread("ec_parallel_size", "1"),
    unread("ec_ip", "\"127.0.0.1\""),
    unread("ec_port", "14579"),
];

const fn extra(name: &'static str, kind: Kind, example: &'static str) -> Key {
    Key {
        name,
        alias: None,
        place: Place::ExtraConfig,
        kind,
        fallback: Fallback::Required,
        meaning: "",
        since: FIRST,
        example,
    }
}

const fn variable(name: &'static str, kind: Kind, example: &'static str) -> Key {
    Key { place: Place::Environment, ..extra(name, kind, example) }
}

const fn outer(name: &'static str, kind: Kind, example: &'static str) -> Key {
    Key { place: Place::TransferConfig, ..extra(name, kind, example) }
}

const fn unread(name: &'static str, example: &'static str) -> Key {
    outer(name, Kind::Unread, example).described("").meaning("For other connectors; not read here.")
}

impl Key {
    const fn required(self) -> Self {
        Self { fallback: Fallback::Required, ..self }
    }

    const fn or(self, value: &'static str) -> Self {
        Self { fallback: Fallback::Value(value), ..self }
    }

    const fn described(self, words: &'static str) -> Self {
        Self { fallback: Fallback::Described(words), ..self }
    }

    const fn meaning(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }
}

/// The setting with this name.
pub(super) fn key(name: &str) -> &'static Key {
    KEYS.iter().find(|key| key.name == name).expect("every setting that is read is in the table")
}
