//! What is written, and what must never be.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use chiasm_core::dtype::Dtype;
use rstest::rstest;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::*;

fn write_one(
    writer: &StoreWriter,
    mm_hash: &str,
    rows: u32,
    bytes: &[u8],
) -> Result<PathBuf, StoreError> {
    let width = u32::try_from(bytes.len()).unwrap() / rows;
    let mut encoding = writer.begin(&hash(mm_hash), Dtype::Uint8, rows, width)?;
    encoding.write_all(bytes).unwrap();
    encoding.finish()
}

/// SHA-256 of what `safetensors.numpy.save({"ec_cache": a})`, version 0.8 for Python, returns for
/// `a = (numpy.arange(rows * width) % 251).astype(dtype).reshape(rows, width)`.
#[rstest]
#[case(Dtype::Uint8, 7, 3, "f198207e5376f9792f5814a740652901d5a2715481a880558c11e29d474fe132")]
#[case(Dtype::Int64, 1, 4096, "772175f3162dca4f2b3c0df10e5a5fc7d8f4b50d86e0fce31da2a47baf158b4b")]
#[case(Dtype::Float64, 3, 5, "158cea09a45f84f21e576662ca4cbf95cf4686fe226d0e78cc81ea7e5cd970ff")]
#[case(Dtype::Float32, 16, 128, "615cc7125797f5ec3b6ef55573413eb2564e44c0fabe80ac289038f8220a11c4")]
fn a_file_is_the_one_that_python_writes(
    #[case] dtype: Dtype,
    #[case] rows: u32,
    #[case] width: u32,
    #[case] sha256: &str,
) {
    let elements = (0..rows * width).map(|element| u8::try_from(element % 251).unwrap());
    let bytes: Vec<u8> = match dtype {
        Dtype::Uint8 => elements.collect(),
        Dtype::Int64 => elements.flat_map(|element| i64::from(element).to_le_bytes()).collect(),
        Dtype::Float64 => elements.flat_map(|element| f64::from(element).to_le_bytes()).collect(),
        Dtype::Float32 => elements.flat_map(|element| f32::from(element).to_le_bytes()).collect(),
        other => panic!("no case for {other}"),
    };
    let out = TempDir::new().unwrap();
    let writer = StoreWriter::create(out.path(), [&hash("aa")], false).unwrap();
    let mut encoding = writer.begin(&hash("aa"), dtype, rows, width).unwrap();
    encoding.write_all(&bytes).unwrap();
    let file = fs::read(encoding.finish().unwrap()).unwrap();
    let hex: Vec<_> = Sha256::digest(&file).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex.concat(), sha256);
}

#[test]
fn every_element_type_is_read_back_as_it_was_written() {
    let out = TempDir::new().unwrap();
    let writer = StoreWriter::create(out.path(), [], false).unwrap();
    for dtype in Dtype::ALL {
        let mut encoding = writer.begin(&hash(dtype.name()), *dtype, 3, 5).unwrap();
        let bytes = vec![7; usize::try_from(dtype.bytes_of(3, 5).unwrap()).unwrap()];
        encoding.write_all(&bytes).unwrap();
        encoding.finish().unwrap();
    }
    let found = scan(out.path(), NO_LIMIT);
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    assert_eq!(found.encodings.len(), Dtype::ALL.len());
    for encoding in found.encodings {
        assert_eq!(encoding.meta.dtype.unwrap().name(), encoding.mm_hash.as_str());
        let mut bytes = Vec::new();
        encoding.open().unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        assert_eq!(u64::try_from(bytes.len()).unwrap(), encoding.meta.bytes);
    }
}

#[rstest]
#[case(".")]
#[case("..")]
#[case("../aa")]
#[case("a/b")]
#[case("/etc")]
#[case("a b")]
#[case("a\0b")]
#[case("画像")]
#[case("a\nb")]
#[case("a\\b")]
#[case("~")]
fn a_hash_that_is_no_plain_name_becomes_no_directory(#[case] name: &str) {
    let outer = TempDir::new().unwrap();
    let out = outer.path().join("out");
    let problems = StoreWriter::create(&out, [&hash(name)], true).unwrap_err();
    assert!(matches!(problems[0].problem, StoreProblem::DirectoryName { .. }), "{problems:?}");
    let writer = StoreWriter::create(&out, [], true).unwrap();
    let error = write_one(&writer, name, 1, b"x").unwrap_err();
    assert!(matches!(error.problem, StoreProblem::DirectoryName { .. }), "{error}");
    assert_eq!(names_in(outer.path()), ["out"]);
    assert_eq!(names_in(&out), Vec::<String>::new());
}

#[test]
fn the_length_of_a_directory_name_is_bounded() {
    let out = TempDir::new().unwrap();
    let longest = "h".repeat(200);
    let writer = StoreWriter::create(out.path(), [&hash(&longest)], false).unwrap();
    write_one(&writer, &longest, 1, b"x").unwrap();
    write_one(&writer, "...", 1, b"x").unwrap();
    let problems = StoreWriter::create(out.path(), [&hash(&"h".repeat(201))], false).unwrap_err();
    assert!(matches!(problems[0].problem, StoreProblem::DirectoryName { .. }), "{problems:?}");
}

#[test]
fn everything_in_the_way_is_reported_at_once_and_nothing_is_made() {
    let outer = TempDir::new().unwrap();
    let out = outer.path().join("out");
    let hashes = ["ok", "Ab", "aB", "x/y", "ok"].map(hash);
    let problems = StoreWriter::create(&out, &hashes, false).unwrap_err();
    let lines: Vec<_> = problems.iter().map(|error| error.problem.to_string()).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("mm_hash \"Ab\" differs from another only in case"), "{lines:?}");
    assert!(lines[1].starts_with("mm_hash \"aB\" differs from another only in case"), "{lines:?}");
    assert!(lines[2].starts_with("mm_hash \"x/y\" cannot name a directory"), "{lines:?}");
    assert!(!out.exists());
}

#[test]
fn a_file_that_is_there_stays_unless_force_is_given() {
    let out = TempDir::new().unwrap();
    let path = out.path().join("aa").join(FILE_NAME);
    let writer = StoreWriter::create(out.path(), [&hash("aa")], false).unwrap();
    // Begun before the other is there: the last moment decides.
    let mut late = writer.begin(&hash("aa"), Dtype::Uint8, 1, 4).unwrap();
    late.write_all(b"late").unwrap();
    write_one(&writer, "aa", 1, b"first").unwrap();
    let first = fs::read(&path).unwrap();
    let error = late.finish().unwrap_err();
    assert!(matches!(error.problem, StoreProblem::Exists), "{error}");
    let error = write_one(&writer, "aa", 1, b"again").unwrap_err();
    assert!(matches!(error.problem, StoreProblem::Exists), "{error}");
    let problems = StoreWriter::create(out.path(), [&hash("aa")], false).unwrap_err();
    assert!(matches!(problems[0].problem, StoreProblem::Exists), "{problems:?}");
    assert_eq!(fs::read(&path).unwrap(), first);
    assert_eq!(names_in(out.path()), ["aa"]);

    let forced = StoreWriter::create(out.path(), [&hash("aa")], true).unwrap();
    write_one(&forced, "aa", 1, b"forced").unwrap();
    assert!(fs::read(&path).unwrap().ends_with(b"forced"));
    assert_eq!(names_in(&out.path().join("aa")), [FILE_NAME]);
}

#[rstest]
fn a_link_in_place_of_a_directory_is_not_followed(#[values(false, true)] force: bool) {
    let outer = TempDir::new().unwrap();
    let (out, target) = (outer.path().join("out"), outer.path().join("target"));
    fs::create_dir(&out).unwrap();
    fs::create_dir(&target).unwrap();
    let writer = StoreWriter::create(&out, [&hash("aa")], force).unwrap();
    // Put there while the file is on its way.
    let mut encoding = writer.begin(&hash("aa"), Dtype::Uint8, 1, 1).unwrap();
    encoding.write_all(b"x").unwrap();
    symlink(&target, out.join("aa")).unwrap();
    let error = encoding.finish().unwrap_err();
    assert!(matches!(error.problem, StoreProblem::NotADirectory), "{error}");
    // And there from the start.
    let error = write_one(&writer, "aa", 1, b"x").unwrap_err();
    assert!(matches!(error.problem, StoreProblem::NotADirectory), "{error}");
    let problems = StoreWriter::create(&out, [&hash("aa")], force).unwrap_err();
    assert!(matches!(problems[0].problem, StoreProblem::NotADirectory), "{problems:?}");
    assert_eq!(names_in(&target), Vec::<String>::new());
    assert_eq!(names_in(&out), ["aa"]);
}

#[test]
fn a_link_in_place_of_the_file_is_replaced_and_not_written_through() {
    let out = TempDir::new().unwrap();
    let precious = out.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    fs::create_dir(out.path().join("aa")).unwrap();
    symlink(&precious, out.path().join("aa").join(FILE_NAME)).unwrap();
    assert!(StoreWriter::create(out.path(), [&hash("aa")], false).is_err());
    let writer = StoreWriter::create(out.path(), [&hash("aa")], true).unwrap();
    let path = write_one(&writer, "aa", 1, b"x").unwrap();
    assert!(fs::symlink_metadata(path).unwrap().is_file());
    assert_eq!(fs::read(precious).unwrap(), b"precious");
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let out = TempDir::new().unwrap();
    let writer = StoreWriter::create(out.path(), [&hash("aa")], false).unwrap();
    let mut dropped = writer.begin(&hash("aa"), Dtype::Uint8, 2, 2).unwrap();
    dropped.write_all(b"abcd").unwrap();
    assert_eq!(names_in(out.path()).len(), 1);
    drop(dropped);
    assert_eq!(names_in(out.path()), Vec::<String>::new());

    let mut short = writer.begin(&hash("aa"), Dtype::Uint8, 2, 2).unwrap();
    short.write_all(b"abc").unwrap();
    let error = short.finish().unwrap_err();
    let StoreProblem::Length { declared: 4, written: 3 } = error.problem else {
        panic!("{error}");
    };
    let mut long = writer.begin(&hash("aa"), Dtype::Uint8, 2, 2).unwrap();
    assert!(long.write_all(b"abcde").is_err());
    drop(long);
    assert_eq!(names_in(out.path()), Vec::<String>::new());
}

#[test]
fn a_file_is_as_readable_as_any_other_new_file() {
    let out = TempDir::new().unwrap();
    let writer = StoreWriter::create(out.path(), [&hash("aa")], false).unwrap();
    let path = write_one(&writer, "aa", 1, b"x").unwrap();
    let plain = out.path().join("plain");
    fs::write(&plain, "x").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn a_tensor_that_fits_no_file_is_refused() {
    let out = TempDir::new().unwrap();
    let writer = StoreWriter::create(out.path(), [&hash("aa")], false).unwrap();
    let error = writer.begin(&hash("aa"), Dtype::Float64, u32::MAX, u32::MAX).unwrap_err();
    assert!(matches!(error.problem, StoreProblem::Header { .. }), "{error}");
    assert_eq!(names_in(out.path()), Vec::<String>::new());
}

#[test]
fn what_killed_writers_left_goes_and_what_is_being_written_stays() {
    let out = TempDir::new().unwrap();
    let first = StoreWriter::create(out.path(), [&hash("aa")], false).unwrap();
    let mut encoding = first.begin(&hash("aa"), Dtype::Uint8, 1, 4).unwrap();
    let left = out.path().join(".chiasm-killed.tmp");
    fs::write(&left, "half").unwrap();
    let others = [".chiasm-notes", "chiasm-a.tmp", ".other.tmp"].map(|name| out.path().join(name));
    for other in &others {
        fs::write(other, "mine").unwrap();
    }
    symlink(&others[0], out.path().join(".chiasm-link.tmp")).unwrap();

    StoreWriter::create(out.path(), [&hash("bb")], false).unwrap();

    assert!(!left.exists());
    assert!(others.iter().all(|other| other.exists()));
    assert!(out.path().join(".chiasm-link.tmp").is_symlink());
    encoding.write_all(b"true").unwrap();
    assert!(encoding.finish().unwrap().exists(), "it was not taken from under its writer");
}
