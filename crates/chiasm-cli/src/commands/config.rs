//! `chiasm config`: look at a configuration before an engine starts with it.
//!
//! It reads with the very code that an instance reads with, so its verdict is the instance's. Of the
//! process environment it asks for the variables in the table and for nothing else.

mod machine;

use std::fs::File;
use std::io::{self, Read, Write as _};

use anyhow::{Context as _, anyhow};
use chiasm_core::config::{
    CONSUMER_EXAMPLE, Config, ConfigError, Effective, Facts, Fallback, Findings, KEYS,
    PRODUCER_EXAMPLE, Place, Problem, SideChannel, Warning, reference,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::number::whole;
use super::table;
use crate::exit::Failure;

/// Most bytes of input: an allowlist of 65536 long names, with room to spare.
const MAX_INPUT_BYTES: u64 = 16 << 20;

/// Check the configuration of an instance, or print the reference page.
#[derive(Debug, Args)]
pub(crate) struct ConfigCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Check(Check),
    Reference(Reference),
}

/// Print every effective value with its source, or all problems at once.
///
/// The input is the object that vLLM takes with --ec-transfer-config, or only its
/// ec_connector_extra_config. Environment variables are taken from the environment of this command.
/// Nothing is resolved or bound.
///
/// What this machine lacks is a warning, since the instance may be meant for another: planes that are
/// required, NIXL and the interfaces for it where keys for them are set, and room for the region.
///
/// Warnings are written on standard error. Exit code 0: an instance would start with this. Exit code
/// 2: it would not, or vLLM would start without Chiasm, since ec_connector and
/// ec_connector_module_path name another connector or none. Every problem is one line on standard
/// error, with the key, the value and what is allowed. A connector of your own that builds on Chiasm's
/// is for you to name: have only its ec_connector_extra_config checked.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true, after_help = examples(), after_long_help = examples() + &keys())]
struct Check {
    /// A file, the JSON text itself, or - for standard input.
    #[arg(value_name = "FILE|JSON|-", allow_hyphen_values = true)]
    input: String,

    /// Number of the engine among the data-parallel ones, from 0: added to a port that is set.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=u32::MAX))]
    data_parallel_index: u32,

    /// Address of the host as its engine would find it. It is bound where no variable names a host.
    #[arg(long, value_name = "ADDR", allow_hyphen_values = true)]
    host_address: Option<String>,
}

/// Print the reference page of all settings, in Markdown.
#[derive(Debug, Args)]
struct Reference;

fn examples() -> String {
    let indented = |text: String| text.trim_end().replace('\n', "\n    ");
    format!(
        "Examples:\n  \
         A file, and the same from a shell:\n    \
         chiasm config check encoder.json\n    \
         chiasm config check '{{\"ec_cpu_bytes\": \"4GiB\"}}'\n  \
         The third of eight data-parallel ranks of a producer:\n    \
         VLLM_EC_SIDE_CHANNEL_PORT=5601 chiasm config check encoder.json \\\n      --data-parallel-index 2\n\n\
         A producer with a pinned port, reachable from the network:\n    {}\n\n\
         A consumer that may read from it:\n    {}",
        indented(PRODUCER_EXAMPLE.shell()),
        indented(CONSUMER_EXAMPLE.shell()),
    )
}

/// The settings and their defaults; `chiasm config reference` says the rest.
fn keys() -> String {
    let mut text = String::new();
    for (title, place) in [
        ("Keys of ec_connector_extra_config and their defaults", Place::ExtraConfig),
        ("Environment variables and their defaults", Place::Environment),
    ] {
        text.extend(["\n\n", title, ":"]);
        for key in KEYS.iter().filter(|key| key.place == place) {
            let names: Vec<_> = key.names().collect();
            let default = match key.fallback {
                Fallback::Required => "required".to_owned(),
                Fallback::Value(value) => value.to_owned(),
                Fallback::Described(words) => words.replace('`', ""),
            };
            text.extend(["\n  ", &format!("{:<26}{default}", names.join(", "))]);
        }
    }
    text + "\n\n`chiasm config reference` says what each is for."
}

/// Runs the command.
pub(crate) fn run(command: &ConfigCommand, json: bool) -> Result<(), Failure> {
    match &command.action {
        Action::Check(check) => run_check(check, json),
        Action::Reference(Reference) if json => print(&keys_as_json().to_string()),
        Action::Reference(Reference) => print(reference().trim_end()),
    }
}

fn run_check(check: &Check, json: bool) -> Result<(), Failure> {
    let value = parse(&read(&check.input)?)?;
    let facts = Facts {
        data_parallel_index: check.data_parallel_index,
        host_address: check.host_address.as_deref(),
    };
    let read = Config::read(&value, &variable, &facts);
    let warnings = match &read {
        Ok(config) => &config.warnings,
        Err(error) => &error.warnings,
    };
    let other = warnings.iter().find(|warning| warning.is_of_another_connector());
    if let Some(other) = other.filter(|_| read.is_ok()) {
        // Nothing else that is said here would be in force.
        if json {
            print(&other_as_json(other).to_string())?;
        }
        return Err(Failure::input(anyhow!("no engine uses Chiasm with this: {other}")));
    }
    tell(warnings);
    match read {
        Ok(config) => {
            let here = machine::look(&config);
            for warning in here.all() {
                let _ = writeln!(io::stderr().lock(), "warning: {warning}");
            }
            if json {
                return print(&config_as_json(&config, &here).to_string());
            }
            print(&overview(&config.effective()))
        }
        Err(error) => {
            if json {
                print(&error_as_json(&error).to_string())?;
            }
            Err(Failure::input(error))
        }
    }
}

/// The process environment. What is no UTF-8 is shown to the parser as such, not taken for unset.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn read(input: &str) -> Result<Vec<u8>, Failure> {
    if input.trim_start().starts_with('{') {
        return Ok(input.as_bytes().to_vec());
    }
    let (name, source): (&str, Box<dyn Read>) = if input == "-" {
        ("standard input", Box::new(io::stdin()))
    } else {
        let file = File::open(input).with_context(|| {
            format!("{input:?}: neither a file that can be read nor a JSON object")
        });
        (input, Box::new(file.map_err(Failure::Input)?))
    };
    let mut bytes = Vec::new();
    source
        .take(MAX_INPUT_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{name:?}"))
        .map_err(Failure::Input)?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        let limit = MAX_INPUT_BYTES >> 20;
        return Err(Failure::input(anyhow!("{name:?}: more than the limit of {limit} MiB")));
    }
    Ok(bytes)
}

fn parse(text: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(text).context("not JSON").map_err(Failure::Input)
}

/// That nobody reads standard error is no reason to fail.
fn tell(warnings: &Findings<Warning>) {
    let mut out = io::stderr().lock();
    for warning in warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    if warnings.omitted() > 0 {
        let _ = writeln!(out, "warning: and {} more", warnings.omitted());
    }
}

fn print(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{text}").context("standard output").map_err(Failure::Work)
}

fn overview(rows: &[Effective]) -> String {
    let mut table = table::table(&["setting", "value", "source"], &[]);
    for row in rows {
        table.add_row([row.name, row.text.as_str(), row.source.to_string().as_str()]);
    }
    table.to_string()
}

fn config_as_json(config: &Config, here: &machine::Findings) -> Value {
    let settings = config.effective().into_iter().map(|row| {
        let source = json!({"kind": row.source.kind(), "name": row.source.name()});
        (row.name.to_owned(), json!({"value": row.value, "source": source}))
    });
    let settings: serde_json::Map<_, _> = settings.collect();
    let listen = config.side_channel.as_ref().and_then(SideChannel::listen);
    json!({
        "settings": settings,
        "listen": listen.map(|address| address.to_string()),
        "reads": config.reads(),
        "warnings": texts(&config.warnings),
        "warnings_omitted": config.warnings.omitted(),
        "required_planes_absent": here.absent_planes,
        "machine_warnings": here.others,
    })
}

fn error_as_json(error: &ConfigError) -> Value {
    let problem = |problem: &Problem| {
        json!({
            "key": problem.key,
            "entry": problem.entry,
            "given": problem.given.as_ref().map(ToString::to_string),
            "reason": problem.reason.to_string(),
            "allowed": Some(&problem.allowed).filter(|allowed| !allowed.is_empty()),
            "nearest": problem.nearest(),
            "message": problem.to_string(),
        })
    };
    json!({
        "problems": error.problems.iter().map(problem).collect::<Vec<_>>(),
        "problems_omitted": error.problems.omitted(),
        "warnings": texts(&error.warnings),
        "warnings_omitted": error.warnings.omitted(),
    })
}

/// In the form of a problem, which it is here.
fn other_as_json(other: &Warning) -> Value {
    let (key, given) = match other {
        Warning::NoModule => ("ec_connector_module_path", None),
        Warning::OtherConnector { given } => ("ec_connector", Some(given.to_string())),
        _ => ("ec_connector", None),
    };
    let problem = json!({
        "key": key,
        "entry": null,
        "given": given,
        "reason": "not Chiasm's",
        "allowed": null,
        "nearest": null,
        "message": other.to_string(),
    });
    json!({"problems": [problem], "problems_omitted": 0, "warnings": [], "warnings_omitted": 0})
}

fn texts(warnings: &Findings<Warning>) -> Vec<String> {
    warnings.iter().map(ToString::to_string).collect()
}

fn keys_as_json() -> Value {
    let keys = KEYS.iter().map(|key| {
        let default = match key.fallback {
            Fallback::Required | Fallback::Described(_) => None,
            Fallback::Value(value) => Some(value),
        };
        json!({
            "name": key.name,
            "alias": key.alias.map(|alias| alias.name),
            "place": key.place.name(),
            "required": key.fallback == Fallback::Required,
            "default": default,
            "allowed": key.allowed(),
            "meaning": key.meaning,
            "example": key.example,
            "since": key.since,
        })
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        command: ConfigCommand,
    }

    fn check(arguments: &[&str]) -> Result<(), Failure> {
        let line = ["chiasm", "check"].iter().chain(arguments);
        run(&Line::try_parse_from(line).unwrap().command, true)
    }

    fn reason(failure: Result<(), Failure>) -> String {
        let Err(Failure::Input(reason)) = failure else { panic!("{failure:?}") };
        format!("{reason:#}")
    }

    #[test]
    fn a_file_or_the_text_itself_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.json");
        std::fs::write(&file, r#"{"ec_cpu_bytes": "4GiB"}"#).unwrap();
        check(&[file.to_str().unwrap()]).unwrap();
        check(&[" {\"ec_cpu_bytes\": 1}"]).unwrap();
        assert!(reason(check(&["{\"ec_cpu_bytes\": 1"])).starts_with("not JSON: EOF"));
        let lines = reason(check(&["no-such-file.json"]));
        assert!(lines.starts_with("\"no-such-file.json\": neither a file"), "{lines}");
        std::fs::write(&file, vec![b' '; (16 << 20) + 1]).unwrap();
        assert!(
            reason(check(&[file.to_str().unwrap()])).ends_with("more than the limit of 16 MiB")
        );
        // Nesting without an end is an error of the parser, not the end of the stack.
        std::fs::write(&file, "[".repeat(1 << 20)).unwrap();
        assert!(reason(check(&[file.to_str().unwrap()])).contains("recursion limit exceeded"));
    }

    #[test]
    fn every_problem_is_one_line_of_one_wrong_input() {
        let text = reason(check(&[r#"{"ec_alowed_peers": [], "ec_verify": "perhaps"}"#]));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "the configuration has 3 problems");
        assert_eq!(lines[1], "  ec_alowed_peers: no such key; did you mean ec_allowed_peers?");
        assert!(lines[2].starts_with("  ec_cpu_bytes: missing"), "{text}");
        assert!(lines[3].starts_with("  ec_verify, \"perhaps\": not allowed"), "{text}");
    }

    #[test]
    fn json_names_the_source_of_every_value() {
        let value = json!({"ec_cpu_bytes": "4GiB", "ec_enable_nixl": true, "other": 1});
        let port = |name: &str| (name == "VLLM_EC_SIDE_CHANNEL_PORT").then(|| "5601".to_owned());
        let facts = Facts { data_parallel_index: 2, host_address: Some("10.0.0.5") };
        let (absent_planes, others) = (vec!["no shm".into()], vec!["no room".into()]);
        let here = machine::Findings { absent_planes, others };
        let json = config_as_json(&Config::read(&value, &port, &facts).unwrap(), &here);
        assert_eq!(json["listen"], "10.0.0.5:5603");
        assert_eq!(json["reads"], true);
        let settings = &json["settings"];
        let source = |kind, name: Option<&str>| json!({"kind": kind, "name": name});
        assert_eq!(settings["ec_cpu_bytes"]["value"], 4_u64 << 30);
        assert_eq!(settings["ec_remote"]["source"], source("key", Some("ec_enable_nixl")));
        assert_eq!(
            settings["pin_lease_s"],
            json!({"value": 30, "source": source("default", None)})
        );
        let variable = source("variable", Some("VLLM_EC_SIDE_CHANNEL_PORT"));
        assert_eq!(settings["VLLM_EC_SIDE_CHANNEL_PORT"]["source"], variable);
        assert_eq!(settings["VLLM_EC_SIDE_CHANNEL_HOST"]["source"], source("engine", None));
        assert_eq!(json["required_planes_absent"], json!(["no shm"]));
        assert_eq!(json["machine_warnings"], json!(["no room"]));
        assert_eq!(json["warnings"].as_array().unwrap().len(), 2, "{json}");
    }

    #[test]
    fn json_names_key_value_and_remedy_of_every_problem() {
        let value = json!({"ec_cpu_bytes": 1, "ec_alowed_peers": [], "ec_allowed_peers": ["a"]});
        let error = Config::read(&value, &|_| None, &Facts::default()).unwrap_err();
        let json = error_as_json(&error);
        let problems = json["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 2);
        assert_eq!(problems[0]["nearest"], "ec_allowed_peers");
        assert_eq!(problems[1]["key"], "ec_allowed_peers");
        assert_eq!((&problems[1]["entry"], &problems[1]["given"]), (&json!(1), &json!("\"a\"")));
        assert!(problems[1]["allowed"].as_str().unwrap().starts_with("a list of"), "{json}");
    }

    #[test]
    fn the_help_names_every_key_and_shows_both_sides() {
        let mut command = Line::command();
        let check = command.find_subcommand_mut("check").unwrap();
        let help = check.render_long_help().to_string();
        for key in KEYS.iter().filter(|key| key.place != Place::TransferConfig) {
            assert!(help.contains(key.name), "{}", key.name);
        }
        for text in ["ec_producer", "ec_consumer", "VLLM_EC_SIDE_CHANNEL_PORT=5601"] {
            assert!(help.contains(text), "{text}");
        }
    }

    #[test]
    fn the_table_shows_value_and_source() {
        let peers: Vec<_> = (1..=20).map(|port| format!("a:{port}")).collect();
        let value = json!({"ec_cpu_bytes": "4GiB", "ec_allowed_peers": peers});
        let config = Config::read(&value, &|_| None, &Facts::default()).unwrap();
        let text = overview(&config.effective());
        for part in ["4 GiB", "key ec_cpu_bytes", "a:8", "and 12 more", "default", "30 s"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("a:9"), "{text}");
    }
}
