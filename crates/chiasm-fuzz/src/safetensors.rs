//! Stores that nobody wrote in good faith: no file panics, and what is taken for an encoder output is
//! one to the format's own library too, byte for byte.

use std::fs;
use std::io::Read as _;

use safetensors::SafeTensors;

use crate::input::Input;
use crate::region::directory;
use crate::store::{FILE_NAME, TENSOR_NAME, scan};

/// The first byte says whether the header's length is there for the fuzzer, and then the second how many
/// bytes follow the header.
pub(crate) fn file_of_a_store(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let content = if input.flag() {
        let data = input.byte();
        let json = input.rest();
        let mut content = (json.len() as u64).to_le_bytes().to_vec();
        content.extend(json);
        content.extend((0..data).map(|byte| byte ^ 0x55));
        content
    } else {
        input.rest().to_vec()
    };
    let dir = directory();
    let store = dir.path().join("hash");
    fs::create_dir(&store).expect("a new directory");
    let path = store.join(FILE_NAME);
    fs::write(&path, &content).expect("room for a small file");
    let found = scan(&path, 1 << 20);
    assert_eq!(found.encodings.len() + found.problems.len(), 1);
    for problem in &found.problems {
        let text = problem.to_string();
        assert!(text.len() < 4096 && !text.contains('\n'), "{text}");
    }
    let Some(encoding) = found.encodings.first() else { return };
    assert_eq!(encoding.mm_hash.as_str(), "hash");
    let mut read = Vec::new();
    encoding.open().expect("it has just been looked at").read_to_end(&mut read).expect("all of it");
    assert_eq!(read.len() as u64, encoding.meta.bytes);
    let whole = SafeTensors::deserialize(&content).expect("a file to the library as well");
    let tensor = whole.tensor(TENSOR_NAME).expect("with that tensor");
    assert_eq!(tensor.data(), read);
    let shape = [encoding.meta.rows, encoding.meta.width].map(|side| side as usize);
    assert_eq!(tensor.shape(), shape);
}
