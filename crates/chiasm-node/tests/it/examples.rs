//! The example engines, as they are documented, against each other.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use chiasm_region::digest_of;

/// `cargo test` builds the examples beside the tests.
fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let path: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: cargo build --examples", path.display());
    let mut command = Command::new(path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A producer and the line that it says.
fn producer() -> (Child, String) {
    let mut producer = example("producer").spawn().unwrap();
    let mut params = String::new();
    BufReader::new(producer.stdout.as_mut().unwrap()).read_line(&mut params).unwrap();
    (producer, params)
}

/// What the consumer says and what its workers do.
fn consume(approved: &str, params: &str) -> (String, String) {
    let mut consumer = example("consumer").arg(approved).spawn().unwrap();
    writeln!(consumer.stdin.take().unwrap(), "{}", params.trim()).unwrap();
    let output = consumer.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// What the example's worker makes of a tensor of so many rows.
fn encoded(rows: u32) -> Vec<u8> {
    let rows_bytes = rows.to_le_bytes();
    let byte = |at: u32| rows_bytes[at as usize % 4] ^ u8::try_from(at % 251).unwrap();
    (0..rows * 2048).map(byte).collect()
}

#[test]
fn a_producer_and_a_consumer_engine_with_their_workers() {
    let (mut producer, params) = producer();
    let json: serde_json::Value = serde_json::from_str(&params).unwrap();
    let endpoint =
        format!("{}:{}", json["cat"]["peer_host"].as_str().unwrap(), json["cat"]["peer_port"]);

    let (said, done) = consume(&endpoint, &params);
    assert_eq!(said, "request-1 loaded 3 items on 2 ranks\n");
    for rows in [16, 100, 577] {
        let digest = digest_of(&encoded(rows));
        for rank in 0..2 {
            let line = format!("rank {rank} loaded {} bytes, {digest}", rows * 2048);
            assert!(done.contains(&line), "{line} in {done}");
        }
    }

    let (said, why) = consume("127.0.0.1:1", &params);
    assert_eq!(said, "request-1 failed\n");
    assert!(why.contains("127.0.0.1:1 is allowed"), "{why}");

    drop(producer.stdin.take());
    let output = producer.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("saved 3, failed 0"));
}
