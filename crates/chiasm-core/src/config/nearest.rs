//! Whether an unknown key is a misspelt one of ours, and which.
//!
//! A misspelt allowlist must never be ignored; a key that belongs to somebody else must not stop the
//! engine. This file draws the line.

use super::limits::MAX_COMPARED_CHARS;

/// What an unknown key is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// This one of ours, spelt wrongly.
    Misspelt(&'static str),
    /// Meant for us by its start; perhaps this one.
    StartsLikeOurs(Option<&'static str>),
    /// Somebody else's.
    Foreign,
}

/// Judges `key`, which is none of `names`.
///
/// It is misspelt if it is within two edits of a valid name, or within one edit once the `ec_` that
/// most of them have is put in front of it (`allowed_peers`). Case does not matter, nor whether words
/// are parted by `_` or `-`. Else it starts like ours if it has the start of a valid name, up to its
/// first `_`.
pub(super) fn guess(key: &str, names: &[&'static str]) -> Guess {
    let starts_like_ours = |key: &str| names.iter().any(|name| key.starts_with(prefix(name)));
    let Some(key) = normal(key) else {
        // Too long to be a misspelling; its start still says whose it is.
        let start: String = key.chars().take(MAX_COMPARED_CHARS).collect();
        let ours = normal(&start).is_some_and(|start| starts_like_ours(&start));
        return if ours { Guess::StartsLikeOurs(None) } else { Guess::Foreign };
    };
    let with_ec = format!("ec_{key}");
    // One edit less is allowed to what had to be completed first.
    let distance = |name: &str| edits(&key, name).min(edits(&with_ec, name).saturating_add(1));
    let nearest = names.iter().map(|name| (distance(name), *name)).min();
    match nearest {
        Some((..=2, name)) => Guess::Misspelt(name),
        _ if !starts_like_ours(&key) => Guess::Foreign,
        // A name that shares less than two thirds is no help.
        _ => Guess::StartsLikeOurs(
            nearest.filter(|(edits, name)| edits * 3 <= name.len()).map(|(_, name)| name),
        ),
    }
}

/// The start that marks a key as ours: up to and with the first `_`.
fn prefix(name: &str) -> &str {
    name.find('_').map_or(name, |end| &name[..=end])
}

/// One spelling for what differs in case and separators only; `None` if it is too long to compare.
fn normal(key: &str) -> Option<String> {
    let short = key.chars().nth(MAX_COMPARED_CHARS).is_none();
    let fold = |char: char| if char == '-' { '_' } else { char.to_ascii_lowercase() };
    short.then(|| key.trim().chars().map(fold).collect())
}

/// Insertions, deletions and replacements of characters that turn one text into the other
/// (Levenshtein 1966). The cost is the product of their lengths.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, from) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, to) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["ec_cpu_bytes", "ec_allowed_peers", "ec_verify", "read_timeout_s"];

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in
            [("", "", 0), ("a", "", 1), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(edits(from, to), count, "{from} {to}");
            assert_eq!(edits(to, from), count, "{to} {from}");
        }
    }

    #[test]
    fn a_misspelt_key_is_recognised() {
        for key in [
            "ec_allowed_peer",
            "ec_alowed_peers",
            "ec_alowed_peer",
            "allowed_peers",
            "allowed_peer",
            "EC_ALLOWED_PEERS",
            "ec-allowed-peers",
            "ecAllowedPeers",
            "allowedPeers",
            " ec_allowed_peers ",
            "\u{435}c_allowed_peers",
        ] {
            assert_eq!(guess(key, &NAMES), Guess::Misspelt("ec_allowed_peers"), "{key}");
        }
        assert_eq!(guess("ead_timeout_s", &NAMES), Guess::Misspelt("read_timeout_s"));
        assert_eq!(guess("verify", &NAMES), Guess::Misspelt("ec_verify"));
    }

    #[test]
    fn a_key_that_starts_like_ours_is_ours_though_nothing_is_close() {
        let long = format!("ec_{}", "x".repeat(1_000_000));
        for key in ["ec_x", "ec_allowlist_of_everybody", "read_", "Read-ahead", &long] {
            assert_eq!(guess(key, &NAMES), Guess::StartsLikeOurs(None), "{}", &key[..4]);
        }
    }

    #[test]
    fn what_is_not_close_is_somebody_elses() {
        let long = "x".repeat(1_000_000);
        // Three edits from read_timeout_s and from ec_verify.
        for key in ["shared_storage_path", "", "ec", "timeout_s", "timeout", "d_timeout_s", &long] {
            assert_eq!(guess(key, &NAMES), Guess::Foreign, "{key:.40}");
        }
        assert_eq!(guess("", &[]), Guess::Foreign);
    }
}
