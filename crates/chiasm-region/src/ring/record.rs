//! A worker's report as the words of a ring's record.
//!
//! | word | holds |
//! |---|---|
//! | 0 | dispatch id |
//! | 1 | generation of the entry |
//! | 2 | bytes |
//! | 3 | index of the entry (32 bits), rank (16), status (16): 1 done, 2 done with a digest, 3 failed |
//! | 4, 5 | digest, little-endian halves; zero where there is none |

use chiasm_core::cache::EntryKey;
use chiasm_core::digest::Digest;
use chiasm_core::dispatch::{DispatchId, Outcome, Rank, Receipt, Report};

/// Words of a record.
pub(crate) const RECORD_WORDS: usize = 6;

const DONE: u64 = 1;
const DONE_WITH_DIGEST: u64 = 2;
const FAILED: u64 = 3;

/// The words of `report`.
pub(crate) fn encode(report: &Report) -> [u64; RECORD_WORDS] {
    let Receipt { dispatch, key, bytes } = report.receipt;
    let (status, digest) = match report.outcome {
        Outcome::Done(None) => (DONE, [0; 16]),
        Outcome::Done(Some(Digest(digest))) => (DONE_WITH_DIGEST, digest),
        Outcome::Failed => (FAILED, [0; 16]),
    };
    let digest = u128::from_le_bytes(digest);
    let (low, high) = halves(digest);
    let named = u64::from(key.index()) | u64::from(report.rank.as_u16()) << 32 | status << 48;
    [dispatch.as_u64(), key.generation(), bytes, named, low, high]
}

/// The report in these words, if they are one and come from `rank`. Whether there is such an order is
/// not looked at here.
pub(crate) fn decode(words: [u64; RECORD_WORDS], rank: Rank) -> Option<Report> {
    let [dispatch, generation, bytes, named, low, high] = words;
    let index = u32::try_from(named & u64::from(u32::MAX)).ok()?;
    let from = Rank::new(u16::try_from(named >> 32 & 0xffff).ok()?)?;
    let digest = u128::from(low) | u128::from(high) << 64;
    let outcome = match (named >> 48, digest) {
        (DONE, 0) => Outcome::Done(None),
        (DONE_WITH_DIGEST, digest) => Outcome::Done(Some(Digest(digest.to_le_bytes()))),
        (FAILED, 0) => Outcome::Failed,
        _ => return None,
    };
    let key = EntryKey::from_parts(index, generation);
    let receipt = Receipt { dispatch: DispatchId::from_u64(dispatch), key, bytes };
    (from == rank).then_some(Report { rank, receipt, outcome })
}

fn halves(word: u128) -> (u64, u64) {
    let low = u64::try_from(word & u128::from(u64::MAX)).expect("64 bits");
    (low, u64::try_from(word >> 64).expect("64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_for_test(outcome: Outcome) -> Report {
        let key = EntryKey::from_parts(u32::MAX, u64::MAX - 1);
        let receipt = Receipt { dispatch: DispatchId::from_u64(7), key, bytes: u64::MAX };
        Report { rank: Rank::new(15).unwrap(), receipt, outcome }
    }

    #[test]
    fn a_report_reads_as_it_was_written() {
        let digest = Digest(std::array::from_fn(|i| u8::try_from(i).unwrap()));
        for outcome in [
            Outcome::Done(None),
            Outcome::Done(Some(digest)),
            Outcome::Done(Some(Digest([0; 16]))),
            Outcome::Failed,
        ] {
            let report = report_for_test(outcome);
            assert_eq!(decode(encode(&report), report.rank), Some(report));
            assert_eq!(decode(encode(&report), Rank::ZERO), None, "another rank's record");
        }
    }

    #[test]
    fn words_that_no_worker_writes_are_no_report() {
        let rank = Rank::new(15).unwrap();
        let good = encode(&report_for_test(Outcome::Failed));
        for (word, value) in
            [(3, 0), (3, u64::MAX), (3, good[3] ^ 1 << 50), (3, good[3] | 1 << 40), (4, 1), (5, 1)]
        {
            let mut words = good;
            words[word] = value;
            assert_eq!(decode(words, rank), None, "{word}: {value:x}");
        }
        assert_eq!(decode([0; 6], Rank::ZERO), None);
    }
}
