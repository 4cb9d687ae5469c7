//! The reference page and the examples on it.

use std::path::Path;

use chiasm_core::config::{
    CONSUMER_EXAMPLE, Example, Facts, KEYS, Key, PRODUCER_EXAMPLE, reference,
};

use super::{FACTS, read_with, warnings};

#[test]
fn the_committed_page_is_what_the_table_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let committed = std::fs::read_to_string(&file).unwrap();
    assert!(
        committed == reference(),
        "docs/configuration.md is out of date: chiasm config reference > docs/configuration.md"
    );
}

#[test]
fn the_page_has_every_name_and_no_broken_row() {
    let page = reference();
    for name in KEYS.iter().flat_map(Key::names) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    for row in page.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(row.matches('|').count(), 6, "{row}");
    }
    for key in KEYS {
        assert!(!key.meaning.is_empty() && !key.example.is_empty(), "{}", key.name);
    }
}

#[test]
fn names_in_the_table_are_unique() {
    let mut names: Vec<_> = KEYS.iter().flat_map(Key::names).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn the_examples_work_and_fit_each_other() {
    let read = |example: &Example| {
        let object = serde_json::from_str(example.transfer_config).unwrap();
        read_with(&object, example.variables, &Facts { host_address: Some("10.9.9.9"), ..FACTS })
    };
    for example in [PRODUCER_EXAMPLE, CONSUMER_EXAMPLE] {
        assert_eq!(warnings(read(&example)), [""; 0], "{example:?}");
        assert!(!example.transfer_config.contains('\''), "the shell's quotes");
    }
    let producer = read(&PRODUCER_EXAMPLE).unwrap().side_channel.unwrap().listen().unwrap();
    let consumer = read(&CONSUMER_EXAMPLE).unwrap().allowed_peers.value;
    let allowed: Vec<_> = consumer.iter().map(ToString::to_string).collect();
    assert_eq!(allowed, [producer.to_string()]);
}
