//! A node that serves: producer, cache and the bytes of its blocks.

use std::time::Duration;

use chiasm_core::cache::{Cache, EntryKey, EvictionPolicy};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::host_hint::HostHint;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use chiasm_core::producer::{Producer, ProducerConfig, ProducerLimits, SharedRegion};

use super::BLOCKS;

pub(super) const BLOCK_BYTES: usize = 8;

/// All of them are on one host.
pub(super) const HOST: HostHint = HostHint([1; 16]);

/// Number of blocks of `name`: 1 to 6, so that a few fill a region.
pub(super) fn blocks_of(name: usize) -> u32 {
    u32::try_from(1 + name % 6).unwrap()
}

/// What `name` is: two elements of four bytes a row.
pub(super) fn meta_of(name: usize) -> EntryMeta {
    EntryMeta::new(blocks_of(name), 2, Dtype::Float32).unwrap()
}

/// The bytes that `name` stands for, other ones for each.
pub(super) fn content_of(name: usize) -> Vec<u8> {
    let length = usize::try_from(meta_of(name).bytes).unwrap();
    (0..length).map(|n| u8::try_from((n * 7 + name * 41 + 1) % 251).unwrap()).collect()
}

pub(super) fn name_of(name: usize) -> String {
    format!("name{name}")
}

/// A digest for tests: two sums (Fletcher's idea), position-dependent.
pub(super) fn digest_of(bytes: &[u8]) -> Digest {
    let (mut low, mut high) = (1_u64, 0_u64);
    for byte in bytes {
        low = (low * 257 + u64::from(*byte)) % 0xffff_fffb;
        high = (high + low) % 0xffff_fffb;
    }
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&low.to_le_bytes());
    digest[8..].copy_from_slice(&high.to_le_bytes());
    Digest(digest)
}

/// Block numbers of an entry in order.
pub(super) fn block_numbers(extents: &[Extent]) -> Vec<usize> {
    extents.iter().flat_map(|extent| extent.first()..extent.end()).map(|n| n as usize).collect()
}

/// One block of a region's bytes.
pub(super) fn block(bytes: &[u8], number: usize) -> &[u8] {
    &bytes[number * BLOCK_BYTES..][..BLOCK_BYTES]
}

pub(super) fn block_mut(bytes: &mut [u8], number: usize) -> &mut [u8] {
    &mut bytes[number * BLOCK_BYTES..][..BLOCK_BYTES]
}

/// The bytes of an entry.
pub(super) fn bytes_at(bytes: &[u8], extents: &[Extent]) -> Vec<u8> {
    block_numbers(extents).into_iter().flat_map(|number| block(bytes, number).to_vec()).collect()
}

pub(super) struct Source {
    pub(super) cache: Cache,
    pub(super) producer: Producer,
    pub(super) bytes: Vec<u8>,
    digests: bool,
    slow: Vec<(EntryKey, usize)>,
    tenants: usize,
}

impl Source {
    pub(super) fn new(seed: u8, digests: bool) -> Self {
        let config = ProducerConfig {
            compat_hash: "same".into(),
            fingerprint: None,
            epoch: u64::from(seed),
            block_size_bytes: BLOCK_BYTES as u64,
            lease: Duration::from_secs(30),
            upstream_lease: Duration::from_secs(30),
            planes: Plane::ALL.into_iter().collect(),
            shm: Some(SharedRegion { host: HOST, name: "chiasm-source".into() }),
            limits: ProducerLimits::for_region(BLOCKS),
        };
        Self {
            cache: Cache::new(BLOCKS, EvictionPolicy::Fifo),
            producer: Producer::new(config, [seed; 32]),
            bytes: vec![0; BLOCKS as usize * BLOCK_BYTES],
            digests,
            slow: Vec::new(),
            tenants: 0,
        }
    }

    fn write(&mut self, key: EntryKey, content: &[u8]) {
        let numbers = block_numbers(self.cache.entry(key).unwrap().extents());
        for (number, chunk) in numbers.into_iter().zip(content.chunks(BLOCK_BYTES)) {
            block_mut(&mut self.bytes, number).copy_from_slice(chunk);
        }
    }

    fn reserve(&mut self, name: usize) -> Option<EntryKey> {
        let hash = MmHash::new(&name_of(name)).unwrap();
        self.cache.reserve(&hash, meta_of(name), blocks_of(name)).ok()
    }

    pub(super) fn save(&mut self, name: usize) {
        if let Some(key) = self.reserve(name) {
            self.finish(key, name);
        }
    }

    fn finish(&mut self, key: EntryKey, name: usize) {
        let content = content_of(name);
        self.write(key, &content);
        let digest = self.digests.then(|| digest_of(&content));
        self.cache.mark_ready(key, digest).unwrap();
    }

    pub(super) fn begin_save(&mut self, name: usize) {
        if let Some(key) = self.reserve(name) {
            self.slow.push((key, name));
        }
    }

    pub(super) fn finish_save(&mut self) {
        if let Some((key, name)) = self.slow.pop() {
            self.finish(key, name);
        }
    }

    /// A tenant that nobody reads, over whatever may be evicted for it.
    pub(super) fn churn(&mut self, blocks: u32) {
        self.tenants += 1;
        let hash = MmHash::new(&format!("tenant{}", self.tenants)).unwrap();
        let meta = EntryMeta::new(blocks, 2, Dtype::Float32).unwrap();
        if let Ok(key) = self.cache.reserve(&hash, meta, blocks) {
            let content = vec![0xEE; blocks as usize * BLOCK_BYTES];
            self.write(key, &content);
            self.cache.mark_ready(key, None).unwrap();
        }
    }

    pub(super) fn finish_all_saves(&mut self) {
        while !self.slow.is_empty() {
            self.finish_save();
        }
    }
}
