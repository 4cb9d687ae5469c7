//! What is found in a store, and what is wrong with the rest.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use chiasm_core::dtype::Dtype;
use proptest::prelude::*;
use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::store::reader::Scan;

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/ec-store")
}

fn one_problem(scan: Scan) -> StoreProblem {
    assert!(scan.encodings.is_empty(), "{scan:?}");
    assert_eq!(scan.problems.len(), 1, "{scan:?}");
    scan.problems.into_iter().next().unwrap().problem
}

/// A store with one file of these bytes under the hash `aa`.
fn store_for_test(bytes: &[u8]) -> TempDir {
    let store = TempDir::new().unwrap();
    fs::create_dir(store.path().join("aa")).unwrap();
    fs::write(store.path().join("aa").join(FILE_NAME), bytes).unwrap();
    store
}

fn file_for_test(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = u64::try_from(header.len()).unwrap().to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

#[test]
fn what_vllm_stored_comes_back_as_the_identical_files() {
    let found = scan(&vectors(), NO_LIMIT);
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    assert_eq!(found.encodings.len(), 4);
    assert!(found.encodings.is_sorted_by_key(|encoding| encoding.mm_hash.clone()));

    let out = TempDir::new().unwrap();
    let hashes = found.encodings.iter().map(|encoding| &encoding.mm_hash);
    let writer = StoreWriter::create(&out.path().join("new/store"), hashes, false).unwrap();
    for encoding in &found.encodings {
        let meta = encoding.meta;
        assert_eq!((meta.rows, meta.width, meta.bytes), (16, 128, 8192));
        assert_eq!(meta.dtype, Some(Dtype::Float32));
        let mut tensor = encoding.open().unwrap();
        let mut copy = writer.begin(&encoding.mm_hash, Dtype::Float32, 16, 128).unwrap();
        let mut chunk = [0; 1000];
        let mut copied = 0;
        loop {
            let bytes = tensor.read(&mut chunk).unwrap();
            if bytes == 0 {
                break;
            }
            copy.write_all(&chunk[..bytes]).unwrap();
            copied += bytes;
        }
        assert_eq!(copied, 8192);
        let path = copy.finish().unwrap();
        assert_eq!(fs::read(path).unwrap(), fs::read(&encoding.path).unwrap());
    }
    assert_eq!(names_in(&out.path().join("new/store")).len(), 4);
}

#[test]
fn a_store_one_directory_and_one_file_are_all_found() {
    let name = "29269a98d4cee15535ef97cc899099fcb9247e1dbcf1f0b5cffb608e1f4e7d92";
    let directory = vectors().join(name);
    for path in [directory.clone(), directory.join(FILE_NAME), directory.join("../").join(name)] {
        let found = scan(&path, NO_LIMIT);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        assert_eq!(found.encodings.len(), 1);
        assert_eq!(found.encodings[0].mm_hash.as_str(), name);
    }
    let inner = directory.join("inner");
    // A path that ends in `..` names its directory only once it is resolved.
    let store = store_for_test(&fs::read(directory.join(FILE_NAME)).unwrap());
    fs::create_dir(store.path().join("aa/inner")).unwrap();
    let found = scan(&store.path().join("aa/inner/.."), NO_LIMIT);
    assert_eq!(found.encodings[0].mm_hash.as_str(), "aa");
    assert!(!inner.exists());
}

#[test]
fn the_tensor_is_found_behind_others() {
    let header = r#"{"__metadata__":{"format":"pt"},"zz":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"ec_cache":{"dtype":"U8","shape":[2,2],"data_offsets":[3,7]}}"#;
    let store = store_for_test(&file_for_test(header, b"abcDEFG"));
    let found = scan(store.path(), NO_LIMIT);
    let mut bytes = Vec::new();
    found.encodings[0].open().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"DEFG");
}

#[test]
fn directories_without_a_file_are_passed_over() {
    let store = store_for_test(&fs::read(&scan(&vectors(), NO_LIMIT).encodings[0].path).unwrap());
    fs::create_dir(store.path().join("bb")).unwrap();
    fs::write(store.path().join("README"), "x").unwrap();
    let found = scan(store.path(), NO_LIMIT);
    assert_eq!((found.encodings.len(), found.problems.len()), (1, 0));
}

#[test]
fn what_is_no_store_says_what_was_looked_for() {
    let empty = TempDir::new().unwrap();
    let file = empty.path().join("model.safetensors");
    assert!(matches!(one_problem(scan(empty.path(), NO_LIMIT)), StoreProblem::NotAStore));
    fs::write(&file, "x").unwrap();
    let problem = one_problem(scan(&file, NO_LIMIT));
    assert!(problem.to_string().contains("<mm_hash>/encoder_cache.safetensors"), "{problem}");
    let missing = one_problem(scan(&empty.path().join("missing"), NO_LIMIT));
    assert!(matches!(missing, StoreProblem::Io(_)), "{missing}");
}

const GOOD: &str = r#"{"ec_cache":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}"#;

/// Eight tensors as large as the parser lets them be: their end is a valid offset, and with the
/// header in front it is past the largest number.
fn header_to_the_end_of_time() -> String {
    let bytes = u64::MAX / 8;
    let tensors: Vec<_> = (0..8)
        .map(|number| {
            let (start, end) = (number * bytes, (number + 1) * bytes);
            format!(
                r#""{number}":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[{start},{end}]}}"#
            )
        })
        .collect();
    format!("{{{}}}", tensors.join(","))
}

#[rstest]
#[case::empty(b"".to_vec(), "truncated: 0 bytes of 8")]
#[case::no_length(b"1234567".to_vec(), "truncated: 7 bytes of 8")]
#[case::header_cut(file_for_test(GOOD, b"")[..40].to_vec(), "truncated: 40 bytes of 70")]
#[case::tensor_cut(file_for_test(GOOD, b"abc"), "truncated: 73 bytes of 74")]
#[case::tensor_missing(file_for_test(GOOD, b""), "truncated: 70 bytes of 74")]
#[case::trailing(file_for_test(GOOD, b"abcde"), "the header describes 74 bytes, the file has 75")]
#[case::some_text(b"A text of some length, no safetensors.".to_vec(), "no safetensors file, or one with a header of")]
#[case::header_past_the_limit(u64::MAX.to_le_bytes().to_vec(), "no safetensors file, or one with a header of 18446744073709551615 bytes")]
#[case::not_json(file_for_test("{nonsense", b""), "the header is wrong: key must be a string")]
#[case::not_utf8([&[2, 0, 0, 0, 0, 0, 0, 0][..], &[0xff, 0xfe]].concat(), "the header is wrong:")]
#[case::nested(file_for_test(&"[".repeat(100_000), b""), "the header is wrong:")]
#[case::offsets_lie(
    file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[2,2],"data_offsets":[0,5]}}"#, b"abcde"),
    "the header is wrong: invalid shape, data type, or offset"
)]
#[case::offsets_start_late(
    file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[2,2],"data_offsets":[1,5]}}"#, b"abcde"),
    "the header is wrong: invalid offset"
)]
#[case::offsets_reversed(
    file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[2,2],"data_offsets":[4,0]}}"#, b"abcd"),
    "the header is wrong: invalid offset"
)]
#[case::shape_overflows(
    file_for_test(
        r#"{"ec_cache":{"dtype":"U8","shape":[18446744073709551615,2],"data_offsets":[0,4]}}"#,
        b"abcd"
    ),
    "the header is wrong: overflow computing buffer size"
)]
#[case::negative_shape(
    file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[-2,-2],"data_offsets":[0,4]}}"#, b"abcd"),
    "the header is wrong: invalid value"
)]
#[case::huge_tensor(file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[1,2305843009213693951],"data_offsets":[0,2305843009213693951]}}"#, b""), "truncated: ")]
#[case::offset_at_the_end_of_time(file_for_test(&header_to_the_end_of_time(), b""), "the header is wrong: sizes and offsets do not fit together")]
#[case::no_tensors(file_for_test("{}", b""), "no tensor named ec_cache; the file has: nothing")]
#[case::other_tensors(file_for_test(r#"{"b\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#, b"xy"), r#"no tensor named ec_cache; the file has: "b\n", "a""#)]
#[case::vector(
    file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#, b"abcd"),
    "ec_cache has 1 dimensions"
)]
#[case::batch(
    file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[1,2,2],"data_offsets":[0,4]}}"#, b"abcd"),
    "ec_cache has 3 dimensions"
)]
#[case::no_rows(
    file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[0,4],"data_offsets":[0,0]}}"#, b""),
    "ec_cache has shape [0, 4]"
)]
#[case::no_width(
    file_for_test(r#"{"ec_cache":{"dtype":"U8","shape":[4,0],"data_offsets":[0,0]}}"#, b""),
    "ec_cache has shape [4, 0]"
)]
#[case::sub_byte_type(
    file_for_test(r#"{"ec_cache":{"dtype":"F4","shape":[2,2],"data_offsets":[0,2]}}"#, b"ab"),
    "ec_cache has element type F4; supported are F64, F32,"
)]
#[case::invented_type(
    file_for_test(r#"{"ec_cache":{"dtype":"F31","shape":[2,2],"data_offsets":[0,4]}}"#, b"abcd"),
    "the header is wrong: unknown variant `F31`"
)]
fn a_bad_file_is_named_with_its_cause(#[case] bytes: Vec<u8>, #[case] message: &str) {
    let store = store_for_test(&bytes);
    let found = scan(store.path(), NO_LIMIT);
    assert!(found.encodings.is_empty());
    let text = found.problems[0].to_string();
    let path = format!("{:?}: ", store.path().join("aa").join(FILE_NAME));
    let said = text.strip_prefix(&path).unwrap_or_else(|| panic!("no path in {text}"));
    assert!(said.starts_with(message), "{said}");
    assert!(said.len() < 600 && !said.contains('\n'), "{said}");
}

#[test]
fn a_header_is_bounded() {
    let limit = usize::try_from(MAX_HEADER_BYTES).unwrap();
    let padded = |length: usize| format!("{GOOD}{}", " ".repeat(length - GOOD.len()));
    let store = store_for_test(&file_for_test(&padded(limit), b"abcd"));
    assert_eq!(scan(store.path(), NO_LIMIT).encodings.len(), 1);
    let store = store_for_test(&file_for_test(&padded(limit + 1), b"abcd"));
    let problem = one_problem(scan(store.path(), NO_LIMIT));
    assert!(matches!(problem, StoreProblem::HeaderTooLong { .. }), "{problem}");
}

#[test]
fn the_number_of_encodings_is_bounded() {
    // Links to one directory: reading follows them, and they are quickly made.
    let target = store_for_test(&file_for_test(GOOD, b"abcd"));
    let store = TempDir::new().unwrap();
    let add = |number: usize| {
        symlink(target.path().join("aa"), store.path().join(number.to_string())).unwrap();
    };
    (0..MAX_ENCODINGS).for_each(add);
    assert_eq!(scan(store.path(), NO_LIMIT).encodings.len(), 4096);
    add(MAX_ENCODINGS);
    assert!(matches!(one_problem(scan(store.path(), NO_LIMIT)), StoreProblem::TooMany));
}

#[test]
fn a_tensor_past_the_callers_limit_is_a_problem() {
    let store = store_for_test(&file_for_test(GOOD, b"abcd"));
    assert_eq!(scan(store.path(), 4).encodings.len(), 1);
    let problem = one_problem(scan(store.path(), 3));
    assert!(matches!(problem, StoreProblem::TooLarge { bytes: 4, limit: 3 }), "{problem}");
}

#[test]
fn all_problems_are_reported_and_the_good_files_with_them() {
    let store = store_for_test(&file_for_test(GOOD, b"abcd"));
    for (name, bytes) in [("bb", &b"x"[..]), ("cc", b"")] {
        fs::create_dir(store.path().join(name)).unwrap();
        fs::write(store.path().join(name).join(FILE_NAME), bytes).unwrap();
    }
    let found = scan(store.path(), NO_LIMIT);
    assert_eq!((found.encodings.len(), found.problems.len()), (1, 2));
}

#[test]
fn a_pipe_or_a_directory_in_place_of_the_file_is_a_problem_and_no_wait() {
    let store = store_for_test(&file_for_test(GOOD, b"abcd"));
    let path = store.path().join("aa").join(FILE_NAME);
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(one_problem(scan(store.path(), NO_LIMIT)), StoreProblem::NotAFile));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(one_problem(scan(store.path(), NO_LIMIT)), StoreProblem::NotAFile));
}

#[test]
fn a_file_that_changes_after_the_scan_is_an_error_and_never_short_data() {
    let store = store_for_test(&file_for_test(GOOD, b"abcd"));
    let path = store.path().join("aa").join(FILE_NAME);
    let encoding = scan(store.path(), NO_LIMIT).encodings.remove(0);
    let mut tensor = encoding.open().unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(72).unwrap();
    let mut bytes = Vec::new();
    let error = tensor.read_to_end(&mut bytes).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    let error = encoding.open().unwrap_err();
    assert!(matches!(error.problem, StoreProblem::Truncated { .. }), "{error}");
    let header = r#"{"ec_cache":{"dtype":"U8","shape":[4,1],"data_offsets":[0,4]}}"#;
    fs::write(&path, file_for_test(header, b"abcd")).unwrap();
    let error = encoding.open().unwrap_err();
    assert!(matches!(error.problem, StoreProblem::Changed), "{error}");
}

proptest! {
    #[test]
    fn no_file_panics_and_what_passes_is_whole(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        tail in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = file_for_test(GOOD, b"abcd");
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(tail);
        let header = header::Header::read(&mut bytes.as_slice(), u64::try_from(bytes.len()).unwrap());
        if let Ok(header) = header {
            let meta = header.meta;
            prop_assert_eq!(meta.dtype.unwrap().bytes_of(meta.rows, meta.width), Some(meta.bytes));
            prop_assert!(header.offset + meta.bytes <= u64::try_from(bytes.len()).unwrap());
        }
    }
}
