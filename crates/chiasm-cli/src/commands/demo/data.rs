//! The encodings of the demo: four real ones, which are part of the command, and generated ones.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chiasm_core::dtype::Dtype;
use chiasm_core::mm_hash::MmHash;
use indicatif::ProgressBar;

use crate::store::{FILE_NAME, StoreWriter};

macro_rules! real {
    ($hash:literal) => {
        (
            $hash,
            include_bytes!(concat!(
                "../../../../../testdata/ec-store/",
                $hash,
                "/encoder_cache.safetensors"
            ))
            .as_slice(),
        )
    };
}

/// Computed by the encoder of a Qwen2-VL with random weights inside vLLM.
const REAL: [(&str, &[u8]); 4] = [
    real!("29269a98d4cee15535ef97cc899099fcb9247e1dbcf1f0b5cffb608e1f4e7d92"),
    real!("43c19d3ad4cc6c8d159e438560913c5da54db641641092cd3e919be75b39ac6a"),
    real!("6cfa586786ec8ee08789fa1a86b046df1b836c143e4f4346f7340bb26d677b4c"),
    real!("a29a36a8630f867f43f64b4a5ba5b877746cc973db8f6fe2bb647de778a2d9cf"),
];

/// Rows of bfloat16 embeddings of a width of 3584 (Qwen2-VL 7B): 1, 4, 14 and 42 MB.
const GENERATED: [(&str, u32); 4] = [
    ("generated-1MB", 140),
    ("generated-4MB", 558),
    ("generated-14MB", 1953),
    ("generated-42MB", 5859),
];

const WIDTH: u32 = 3584;

/// One encoding and the file that it is in.
#[derive(Debug)]
pub(super) struct Encoding {
    pub(super) hash: String,
    pub(super) label: &'static str,
    pub(super) path: PathBuf,
}

impl Encoding {
    pub(super) fn is_generated(&self) -> bool {
        self.label == GENERATED_LABEL
    }
}

const GENERATED_LABEL: &str = "generated";

/// Bytes of all generated encodings, for the progress bar.
pub(super) fn total_bytes() -> u64 {
    GENERATED.iter().map(|(_, rows)| u64::from(*rows) * u64::from(WIDTH) * 2).sum()
}

/// Writes all encodings into a new store.
pub(super) fn write(store: &Path, bar: &ProgressBar) -> anyhow::Result<Vec<Encoding>> {
    let mut encodings = Vec::new();
    for (hash, file) in REAL {
        let directory = store.join(hash);
        fs::create_dir_all(&directory)?;
        let path = directory.join(FILE_NAME);
        fs::write(&path, file)?;
        encodings.push(Encoding { hash: hash.into(), label: "from a vLLM encoder", path });
    }
    let hashes = GENERATED.iter().map(|(name, _)| MmHash::new(name));
    let hashes = hashes.collect::<Result<Vec<_>, _>>()?;
    let writer = StoreWriter::create(store, &hashes, false).map_err(|problems| {
        anyhow::anyhow!("{}", problems.first().map_or_else(String::new, ToString::to_string))
    })?;
    for ((_, rows), hash) in GENERATED.iter().zip(&hashes) {
        let mut file = writer.begin(hash, Dtype::Bfloat16, *rows, WIDTH)?;
        let mut left = u64::from(*rows) * u64::from(WIDTH) * 2;
        let mut noise = Noise(u64::from(*rows));
        let mut chunk = vec![0; 1 << 20];
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            noise.fill(&mut chunk[..length]);
            file.write_all(&chunk[..length])?;
            bar.inc(length as u64);
            left -= length as u64;
        }
        let path = file.finish()?;
        encodings.push(Encoding { hash: hash.to_string(), label: GENERATED_LABEL, path });
    }
    Ok(encodings)
}

/// Numbers that look random (xorshift64), so that no two blocks are alike and a mix-up shows.
struct Noise(u64);

impl Noise {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Whether the file in the directory `copy` has exactly the bytes of `original`.
pub(super) fn same(original: &Path, copy: &Path) -> anyhow::Result<bool> {
    let copy = copy.join(FILE_NAME);
    let mut one = File::open(original)?;
    let mut other = File::open(&copy).with_context(|| copy.display().to_string())?;
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let bytes = one.read(&mut left)?;
        if bytes == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..bytes])?;
        if left[..bytes] != right[..bytes] {
            return Ok(false);
        }
    }
}
