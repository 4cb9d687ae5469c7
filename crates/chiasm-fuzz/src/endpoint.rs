//! Endpoints and allowlists: whatever is accepted has one canonical form, and nothing else is approved.

use chiasm_core::allowlist::{Allowlist, Verdict};
use chiasm_core::endpoint::{Endpoint, Host, ListenAddress};

use crate::input::Input;

pub(crate) fn endpoint(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Endpoint::parse(&text) {
        Ok(endpoint) => {
            let canonical = endpoint.to_string();
            assert_eq!(Endpoint::parse(&canonical).as_ref(), Ok(&endpoint), "{text:?} {canonical}");
            assert!(canonical.len() <= 300 && canonical.is_ascii());
            let list = Allowlist::parse([&*text]).expect("an endpoint is an entry");
            assert_eq!(list.check(&endpoint), Verdict::Allowed);
        }
        Err(error) => assert!(error.to_string().len() < 2048),
    }
    if let Ok(host) = Host::parse(&text) {
        assert_eq!(Host::parse(&host.to_string()), Ok(host), "{text:?}");
    }
    if let Ok(listen) = ListenAddress::parse(&text) {
        assert_eq!(ListenAddress::parse(&listen.to_string()), Ok(listen), "{text:?}");
    }
}

/// A byte for the endpoint that is asked about; entries, each with its length in front.
pub(crate) fn allowlist(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let port = u16::from(input.byte()) + 5600;
    let mut entries = Vec::new();
    while !input.is_empty() {
        entries.push(match input.byte() {
            0 => format!("10.0.0.1:{}-{}", 5600, u16::from(input.byte()) + 5600),
            1 => format!("10.0.0.1:{}", u16::from(input.byte()) + 5600),
            length => String::from_utf8_lossy(input.take(usize::from(length))).into_owned(),
        });
    }
    let asked = Endpoint::parse(&format!("10.0.0.1:{port}")).expect("an endpoint");
    let foreign = Endpoint::parse("203.0.113.99:1").expect("an endpoint");
    match Allowlist::parse(entries.iter().map(String::as_str)) {
        Ok(list) => {
            // Entry by entry it is the same: none lends another anything.
            let alone = entries.iter().any(|entry| {
                Allowlist::parse([entry.as_str()])
                    .is_ok_and(|list| list.check(&asked) == Verdict::Allowed)
            });
            assert_eq!(list.check(&asked) == Verdict::Allowed, alone);
            let named = entries.iter().any(|entry| entry.contains("113"));
            assert!(named || list.check(&foreign) != Verdict::Allowed);
        }
        Err(problems) => {
            assert!(!problems.is_empty() && problems.len() <= entries.len());
            for problem in problems {
                let text = problem.to_string();
                assert!(text.len() < 2048 && !text.contains('\n'), "{text}");
            }
        }
    }
}
