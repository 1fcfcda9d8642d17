//! What holds for all bytes: the parser returns, and what it returns does not depend on the chunks.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{File, parse};

/// The recording or the error, as text, in which a NaN equals itself.
fn outcome(file: &[u8], chunk_sizes: &[usize]) -> String {
    format!("{:?}", parse(file, chunk_sizes))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_give_the_same_result_in_all_chunks(bytes in vec(any::<u8>(), 0..300), sizes in vec(1usize..40, 1..10)) {
        let file = [b"GGUF\x03\0\0\0".to_vec(), bytes.clone()].concat();
        prop_assert_eq!(outcome(&file, &sizes), outcome(&file, &[usize::MAX]));
        prop_assert_eq!(outcome(&bytes, &sizes), outcome(&bytes, &[usize::MAX]));
    }

    #[test]
    fn small_numbers_give_the_same_result_in_all_chunks(bytes in vec(0u8..14, 0..400), sizes in vec(1usize..40, 1..10)) {
        // Small bytes at the places of lengths and types lead deeper into the header than random ones.
        let sparse = bytes.chunks(2).flat_map(|pair| [pair[0], 0, 0, 0, 0, 0, 0, 0, pair[pair.len() - 1], 0, 0, 0]);
        let file = [b"GGUF\x02\0\0\0".to_vec(), sparse.collect()].concat();
        prop_assert_eq!(outcome(&file, &sizes), outcome(&file, &[usize::MAX]));
    }

    #[test]
    fn a_damaged_file_gives_the_same_result_in_all_chunks(
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
        sizes in vec(1usize..40, 1..10),
    ) {
        let mut file = File::example().bytes();
        for (index, byte) in damage {
            let index = index.index(file.len());
            file[index] = byte;
        }
        prop_assert_eq!(outcome(&file, &sizes), outcome(&file, &[usize::MAX]));
        file.truncate(length.index(file.len()));
        prop_assert_eq!(outcome(&file, &sizes), outcome(&file, &[usize::MAX]));
    }
}
