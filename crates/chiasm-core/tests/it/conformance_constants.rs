//! Conformance 0: upstream's numbers, as literals. Whoever changes one changes what peers see.

use std::time::Duration;

use chiasm_core::admission::limits::WAIT_BUDGET;
use chiasm_core::limits::{ACK_TIMEOUT, READ_TIMEOUT, UPSTREAM_LEASE};
use chiasm_core::wire::{AckStatus, CONNECTOR_VERSION};

#[test]
fn times_are_upstreams() {
    assert_eq!(UPSTREAM_LEASE, Duration::from_secs(30));
    assert_eq!(ACK_TIMEOUT, Duration::from_secs(30));
    assert_eq!(READ_TIMEOUT, Duration::from_secs(20));
    assert_eq!(WAIT_BUDGET, Duration::from_mins(1));
}

#[test]
fn version_and_statuses_are_upstreams() {
    assert_eq!(CONNECTOR_VERSION, 2);
    let codes = AckStatus::ALL.map(|status| (status.code(), status));
    assert_eq!(
        codes,
        [
            (0, AckStatus::Ok),
            (1, AckStatus::Missing),
            (2, AckStatus::Incompat),
            (3, AckStatus::Version),
            (4, AckStatus::Internal),
            (5, AckStatus::NotReady),
        ]
    );
}
