//! Refuses keys that no message has, and names the one that was probably meant.

use anyhow::{Result, bail};
use chiasm_core::excerpt::Excerpt;
use serde_json::Value;

/// Most single-character changes between a wrong key and the right one that is named.
const MAX_EDITS: usize = 3;

/// Checks that `value` is an object with `known` keys, or is not there. `path` says where it stands.
pub(super) fn check(value: &Value, path: &str, known: &[&str]) -> Result<()> {
    let object = match value {
        Value::Null => return Ok(()),
        Value::Object(object) => object,
        other => bail!("{path}: expected an object, found {}", Excerpt::of_json(other)),
    };
    for key in object.keys() {
        if known.contains(&key.as_str()) {
            continue;
        }
        let found = Excerpt::of(key);
        let nearest = known
            .iter()
            .map(|known| (edits(key, known), known))
            .filter(|(edits, _)| *edits <= MAX_EDITS)
            .min();
        match nearest {
            Some((_, nearest)) => bail!("{path}: unknown key {found}; did you mean \"{nearest}\"?"),
            None => bail!("{path}: unknown key {found}; known keys: {}", known.join(", ")),
        }
    }
    Ok(())
}

/// Insertions, deletions and replacements of characters that turn one text into the other. Texts
/// whose lengths differ by more than [`MAX_EDITS`] are not looked at any closer.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    if from.len().abs_diff(to.len()) > 4 * MAX_EDITS {
        return usize::MAX;
    }
    // Per prefix of `to`: the edits that make it of what has been read of `from`.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (read, char) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = read + 1;
        for (index, wanted) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(char != *wanted);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("mm_hash", "mm_hash"), 0);
        assert_eq!(edits("mmhash", "mm_hash"), 1);
        assert_eq!(edits("sesion_di", "session_id"), 3);
        assert_eq!(edits("", "ab"), 2);
        assert_eq!(edits(&"x".repeat(1 << 20), "mm_hash"), usize::MAX);
    }

    #[test]
    fn a_near_key_is_named_and_far_ones_are_listed() {
        let known = ["mm_hash", "status"];
        assert!(check(&json!({"mm_hash": 1, "status": 2}), "$", &known).is_ok());
        let near = check(&json!({"mm-hash": 1}), "$", &known).unwrap_err();
        assert_eq!(near.to_string(), "$: unknown key \"mm-hash\"; did you mean \"mm_hash\"?");
        let list = check(&json!([1, 2]), "$.chiasm", &known).unwrap_err();
        assert_eq!(list.to_string(), "$.chiasm: expected an object, found an array of 2");
        let far = check(&json!({"embedding": 1}), "$", &known).unwrap_err();
        assert_eq!(far.to_string(), "$: unknown key \"embedding\"; known keys: mm_hash, status");
    }
}
