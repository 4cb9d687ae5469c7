//! The compatibility hash against values that Python computed.

use chiasm_core::identity::{Identity, compatibility_hash};
use rstest::rstest;

/// `sha256(json.dumps([version, model, dtype, block_size], separators=(",", ":")).encode())` of
/// `CPython` 3.
#[rstest]
#[case::as_an_engine_has_it(
    "0.33.0",
    "Qwen/Qwen2-VL-2B-Instruct",
    "torch.bfloat16",
    7168,
    "3a3f4ecd5bc7e16363933d4d4b44bb56cbb89a26faee30ec8822251b7064bf90"
)]
#[case::empty("", "", "", 0, "3a906168cde7f12c2733b2864e04e1c9c986c1f3b51e29a750afec1a0a35bb42")]
#[case::everything_that_is_escaped(
    "0.33.0",
    "/modèles/画像|\u{1F441}\"\\/\n\r\t\u{8}\u{c}\0\u{1f}\u{7f}\u{2028}",
    "torch.float16",
    u64::MAX,
    "ba28916381bf117fa8b9f7173264f7b71e0db4c18b611c26d3b9ea47114863bd"
)]
fn the_compatibility_hash_is_pythons(
    #[case] version: &str,
    #[case] model: &str,
    #[case] dtype: &str,
    #[case] block_size_bytes: u64,
    #[case] expected: &str,
) {
    assert_eq!(compatibility_hash(version, model, dtype, block_size_bytes), expected);
}

#[test]
fn commands_meet_without_flags() {
    let identity = Identity::default();
    assert_eq!(
        identity.compat_hash,
        "2b2c3e25139f252d1fc25b8ca7292a976569f83a5c56919aadbdc27200c3af40"
    );
    assert_eq!(identity, Identity::new("chiasm", "any", "any", 4096));
    assert_eq!(identity.fingerprint, None);
}

#[test]
fn hazard_a10_each_part_changes_the_hash_and_the_fingerprint_does_not() {
    let base = Identity::new("0.33.0", "m", "torch.bfloat16", 4096);
    for other in [
        Identity::new("0.32.0", "m", "torch.bfloat16", 4096),
        Identity::new("0.33.0", "n", "torch.bfloat16", 4096),
        Identity::new("0.33.0", "m", "torch.float16", 4096),
        Identity::new("0.33.0", "m", "torch.bfloat16", 8192),
        // The separator inside a part must not join two parts.
        Identity::new("0.33.0\",\"m", "", "torch.bfloat16", 4096),
    ] {
        assert_ne!(base.compat_hash, other.compat_hash);
    }
    let fingerprinted = base.clone().with_fingerprint("rev 1");
    assert_eq!(fingerprinted.compat_hash, base.compat_hash);
    assert_ne!(fingerprinted, base);
}
