//! `chiasm endpoint`: the canonical form of an endpoint, or why a text is none.

use std::io::{self, Write as _};

use chiasm_core::endpoint::Endpoint;
use clap::Args;

use crate::exit::Failure;

/// Print the canonical form of an endpoint: the one that is announced, compared with
/// `ec_allowed_peers` and logged.
///
/// Exit code 2 and the reason if HOST:PORT is no endpoint. No name is resolved.
#[derive(Debug, Args)]
pub(crate) struct EndpointCommand {
    /// Address or name of a producer and its port: 10.0.0.5:5601, [fe80::1]:5601 or
    /// vision-0.example:5601.
    #[arg(value_name = "HOST:PORT", allow_hyphen_values = true)]
    endpoint: String,
}

/// Runs the command.
pub(crate) fn run(command: &EndpointCommand, json: bool) -> Result<(), Failure> {
    let endpoint = Endpoint::parse(&command.endpoint).map_err(Failure::input)?;
    let line = if json { to_json(&endpoint).to_string() } else { endpoint.to_string() };
    writeln!(io::stdout(), "{line}").map_err(Failure::work)
}

fn to_json(endpoint: &Endpoint) -> serde_json::Value {
    let host = endpoint.host();
    let kind = match host.address() {
        Some(address) if address.is_ipv4() => "ipv4",
        Some(_) => "ipv6",
        None => "name",
    };
    serde_json::json!({
        "endpoint": endpoint.to_string(),
        "host": host.to_string(),
        "host_kind": kind,
        "port": endpoint.port(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> EndpointCommand {
        EndpointCommand { endpoint: text.to_owned() }
    }

    #[test]
    fn json_says_what_the_text_means() {
        let json = |text| to_json(&Endpoint::parse(text).unwrap()).to_string();
        assert_eq!(
            json("[::ffff:10.0.0.5]:5601"),
            r#"{"endpoint":"10.0.0.5:5601","host":"10.0.0.5","host_kind":"ipv4","port":5601}"#
        );
        assert_eq!(
            json("[FE80::1]:1"),
            r#"{"endpoint":"[fe80::1]:1","host":"fe80::1","host_kind":"ipv6","port":1}"#
        );
        assert_eq!(
            json("Vision-0.:1"),
            r#"{"endpoint":"vision-0:1","host":"vision-0","host_kind":"name","port":1}"#
        );
    }

    #[test]
    fn a_text_that_is_no_endpoint_is_wrong_input() {
        for text in ["127.1:5601", "0.0.0.0:5601", "10.0.0.5", "-x:1", "10.0.0.5:0"] {
            let failure = run(&command(text), false).unwrap_err();
            let Failure::Input(reason) = failure else { panic!("{failure:?}") };
            assert!(reason.to_string().contains(text), "{reason}");
        }
    }
}
