//! Files that are wrong in one way each. The error must say in which, and be the same however the bytes come.

use super::super::{Array, Event, MAX_HEADER_BYTES, Parser, Value};
use super::*;

/// The error's text, when the code is `invalid_file`.
fn invalid(file: &File) -> String {
    let error = error_of(&file.bytes());
    assert_eq!(error.code(), "invalid_file", "{error}");
    error.to_string()
}

/// The error's text, when the code is `unsupported_model`.
fn unsupported(file: &File) -> String {
    let error = error_of(&file.bytes());
    assert_eq!(error.code(), "unsupported_model", "{error}");
    error.to_string()
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn reads_the_example_whose_faulty_copies_are_rejected() {
    let Recording { header, tensors } = parse(&File::example().bytes(), &[5]).unwrap();
    let names: Vec<_> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["first", "second"], "in file order");
    let data = File::example().data;
    assert_eq!(tensors, [&data[..12], &data[32..]]);
    assert_eq!(header.metadata.str("general.name"), Ok(Some("example")));
    assert_eq!(header.metadata.strings("an.array.of.strings").unwrap().unwrap(), ["a", "", "\u{e9}\u{4e2d}"]);
    assert_eq!(
        header.metadata.get("an.array.of.arrays"),
        Some(&Value::Array(Array::Nested(vec![Array::U8(vec![1, 2]), Array::Bool(vec![true])])))
    );
    assert_eq!(header.metadata.len(), 5);
    assert_eq!(header.total_bytes(), File::example().bytes().len() as u64);
    assert_eq!(header.data_offset, header.header_bytes.next_multiple_of(32));
}

#[test]
fn reads_every_scalar_type() {
    let file = File::new()
        .entry("0", 0, &[200])
        .entry("1", 1, &[200])
        .entry("2", 2, &[1, 2])
        .entry("3", 3, &[0xff, 0xff])
        .entry("4", 4, &[1, 2, 3, 4])
        .entry("5", 5, &[0xfe, 0xff, 0xff, 0xff])
        .entry("6", 6, &[0, 0, 0xc0, 0x3f])
        .entry("7", 7, &[0])
        .entry("8", 8, &string(b"text"))
        .entry("10", 10, &[1, 0, 0, 0, 0, 0, 0, 0x80])
        .entry("11", 11, &[0xff; 8])
        .entry("12", 12, &[0, 0, 0, 0, 0, 0, 0xf8, 0xbf]);
    let metadata = parse(&file.bytes(), &[3]).unwrap().header.metadata;
    for (key, value) in [
        ("0", Value::U8(200)),
        ("1", Value::I8(-56)),
        ("2", Value::U16(0x0201)),
        ("3", Value::I16(-1)),
        ("4", Value::U32(0x0403_0201)),
        ("5", Value::I32(-2)),
        ("6", Value::F32(1.5)),
        ("7", Value::Bool(false)),
        ("8", Value::String("text".to_owned())),
        ("10", Value::U64((1 << 63) + 1)),
        ("11", Value::I64(-1)),
        ("12", Value::F64(-1.5)),
    ] {
        assert_eq!(metadata.get(key), Some(&value));
    }
}

#[test]
fn reads_arrays_of_every_number_type() {
    let numbers = [0, 1, 2, 3, 4, 5, 6, 10, 11, 12].map(|ty| {
        let bytes = match ty {
            0 | 1 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            _ => 8,
        };
        (ty, bytes)
    });
    let file = numbers.iter().fold(File::new(), |file, &(ty, bytes)| {
        let mut value = array(ty, 3);
        value.extend((0..3 * bytes).map(|i| i as u8));
        file.entry(&ty.to_string(), ARRAY, &value)
    });
    let metadata = parse(&file.bytes(), &[5]).unwrap().header.metadata;
    let get = |key: &str| match metadata.get(key) {
        Some(Value::Array(array)) => array.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(get("0"), Array::U8(vec![0, 1, 2]));
    assert_eq!(get("1"), Array::I8(vec![0, 1, 2]));
    assert_eq!(get("2"), Array::U16(vec![0x0100, 0x0302, 0x0504]));
    assert_eq!(get("3"), Array::I16(vec![0x0100, 0x0302, 0x0504]));
    let words = [0x0302_0100, 0x0706_0504, 0x0b0a_0908];
    assert_eq!(get("4"), Array::U32(words.to_vec()));
    assert_eq!(get("5"), Array::I32(words.map(|word| word as i32).to_vec()));
    assert_eq!(get("6"), Array::F32(words.map(f32::from_bits).to_vec()));
    let longs = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, 0x1716_1514_1312_1110];
    assert_eq!(get("10"), Array::U64(longs.to_vec()));
    assert_eq!(get("11"), Array::I64(longs.map(|long| long as i64).to_vec()));
    assert_eq!(get("12"), Array::F64(longs.map(f64::from_bits).to_vec()));
}

#[test]
fn reads_version_2() {
    let mut file = File::example();
    file.version = 2;
    assert_eq!(parse(&file.bytes(), &[64]).unwrap().header.version, 2);
}

#[test]
fn skips_gaps_between_tensors_and_padding_behind_them() {
    let file = File::new().tensor("a", &[2], TensorType::F32, 0).tensor("b", &[4], TensorType::F16, 96).data(300);
    let recording = parse(&file.bytes(), &[7]).unwrap();
    assert_eq!(recording.tensors, [&file.data[..8], &file.data[96..104]]);
}

#[test]
fn honours_the_alignment_of_the_file() {
    let file = |alignment: u32| {
        File::new()
            .entry("general.alignment", U32, &alignment.to_le_bytes())
            .tensor("a", &[2], TensorType::F32, 0)
            .tensor("b", &[2], TensorType::F32, 8)
    };
    let mut bytes = file(8).bytes();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let start = bytes.len() as u64;
    bytes.extend(1..=16);
    let recording = parse(&bytes, &[3]).unwrap();
    assert_eq!((recording.header.alignment, recording.header.data_offset), (8, start));
    assert_eq!(recording.tensors, [[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16]]);
    assert_says(&invalid(&file(16)), &["tensor \"b\" offset", "is 8", "no multiple of the alignment, 16"]);
}

#[test]
fn rejects_an_alignment_that_is_no_power_of_two() {
    for alignment in [0u32, 3, 48] {
        let file = File::new().entry("general.alignment", U32, &alignment.to_le_bytes());
        assert_says(&invalid(&file), &["general.alignment", &format!("is {alignment},"), "power of two"]);
    }
    let file = File::new().entry("general.alignment", STRING, &string(b"32"));
    assert_says(&invalid(&file), &["general.alignment", "is a string"]);
}

#[test]
fn rejects_a_bad_magic_and_shows_it() {
    let mut file = File::example();
    file.magic = *b"GG\0F";
    assert_says(&invalid(&file), &["magic", r#"starts with "GG\x00F""#, r#"starts with "GGUF""#]);
}

#[test]
fn says_what_a_file_is_that_is_not_gguf() {
    for (start, words) in [
        (&b"<!DOCTYPE html><html>"[..], "web page"),
        (b"<html lang=\"en\">", "web page"),
        (b"\n<!doctype html>", "web page"),
        (b"\xef\xbb\xbf<!DOCTYPE html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"{\"error\":\"Repository not found\"}", "JSON"),
        (b"PK\x03\x04", "PyTorch"),
        (b"tjgg\x03\0\0\0", "from before GGUF"),
    ] {
        let error = error_of(start);
        assert_eq!(error.code(), "invalid_file");
        assert_says(&error.to_string(), &["magic", words]);
    }
}

#[test]
fn rejects_other_versions_with_a_way_out() {
    let with_version = |version| {
        let mut file = File::example();
        file.version = version;
        unsupported(&file)
    };
    assert_says(&with_version(1), &["GGUF version", "it is 1", "convert"]);
    assert_says(&with_version(4), &["GGUF version", "it is 4", "newer release"]);
    assert_says(&with_version(3 << 24), &["GGUF version", "big-endian (version 3)"]);
    assert_says(&with_version(0), &["GGUF version", "it is 0"]);
}

#[test]
fn rejects_a_count_of_entries_that_no_header_holds() {
    for count in [1 << 60, u64::MAX, MAX_HEADER_BYTES] {
        let mut file = File::example();
        file.entry_count = Some(count);
        assert_says(&invalid(&file), &["metadata entry count", &format!("is {count},"), "128 MiB"]);
    }
}

#[test]
fn rejects_a_count_of_tensors_that_no_header_holds() {
    for count in [1 << 60, u64::MAX, MAX_HEADER_BYTES] {
        let mut file = File::example();
        file.tensor_count = Some(count);
        assert_says(&invalid(&file), &["tensor count", &format!("is {count},"), "128 MiB"]);
    }
}

#[test]
fn rejects_a_string_of_2_to_the_63_bytes_as_soon_as_its_length_is_there() {
    let length = (1u64 << 63).to_le_bytes();
    let file = File::new().entry("general.name", STRING, &length);
    assert_says(&invalid(&file), &["length of value of \"general.name\"", "is 9223372036854775808,"]);

    let mut file = File::new();
    file.entries.extend(length);
    file.entry_count = Some(1);
    assert_says(&invalid(&file), &["length of metadata key 1", "is 9223372036854775808,"]);

    let mut file = File::new();
    file.tensors.extend(length);
    file.tensor_count = Some(2);
    assert_says(&invalid(&file), &["length of name of tensor 1", "is 9223372036854775808,"]);

    let file = File::new().entry("tokens", ARRAY, &[array(STRING, 2), string(b"ok"), length.to_vec()].concat());
    assert_says(&invalid(&file), &["length of element 1 of \"tokens\"", "is 9223372036854775808,"]);
}

#[test]
fn rejects_an_array_that_no_header_holds() {
    for (element_type, length) in [(U8, u64::MAX), (U32, 1 << 60), (STRING, 1 << 61), (ARRAY, MAX_HEADER_BYTES)] {
        let file = File::new().entry("tokens", ARRAY, &array(element_type, length));
        assert_says(&invalid(&file), &["length of the array \"tokens\"", &format!("is {length},")]);
    }
}

#[test]
fn rejects_arrays_that_nest_too_deep() {
    let nest = |depth: usize| {
        let mut value = array(ARRAY, 1).repeat(depth - 1);
        value.extend([array(U8, 1), vec![5]].concat());
        File::new().entry("nest", ARRAY, &value)
    };
    assert!(parse(&nest(4).bytes(), &[1]).is_ok());
    assert_says(&invalid(&nest(5)), &["value of \"nest\"", "more than 4 deep"]);
    assert_says(&invalid(&nest(100_000)), &["value of \"nest\"", "more than 4 deep"]);
}

#[test]
fn rejects_value_types_that_do_not_exist() {
    assert_says(&invalid(&File::new().entry("key", 13, &[0; 8])), &["value type of \"key\"", "is 13"]);
    let file = File::new().entry("key", ARRAY, &array(u32::MAX, 0));
    assert_says(&invalid(&file), &["value type of \"key\"", "is 4294967295"]);
}

#[test]
fn rejects_a_boolean_that_is_neither_0_nor_1() {
    assert_says(&invalid(&File::new().entry("flag", BOOL, &[2])), &["value of \"flag\"", "byte 2"]);
    let file = File::new().entry("flags", ARRAY, &[array(BOOL, 2), vec![1, 255]].concat());
    assert_says(&invalid(&file), &["value of \"flags\"", "byte 255"]);
}

#[test]
fn rejects_strings_that_are_not_utf_8() {
    let bad = string(b"ab\xff");
    assert_says(
        &invalid(&File::new().entry("name", STRING, &bad)),
        &["value of \"name\"", "is not UTF-8 (byte 2 of 3)"],
    );
    let file = File::new().entry("names", ARRAY, &[array(STRING, 1), bad.clone()].concat());
    assert_says(&invalid(&file), &["element 0 of \"names\"", "is not UTF-8"]);
    let file = File::new().raw_tensor(b"ab\xff", &[1], 0, 0);
    assert_says(&invalid(&file), &["name of tensor 1", "is not UTF-8"]);
    let mut file = File::new();
    file.entries = bad;
    file.entry_count = Some(1);
    assert_says(&invalid(&file), &["metadata key 1", "is not UTF-8"]);
}

#[test]
fn rejects_empty_names() {
    assert_says(&invalid(&File::new().entry("a", BOOL, &[1]).entry("", BOOL, &[1])), &["metadata key 2", "is empty"]);
    assert_says(&invalid(&File::new().tensor("", &[1], TensorType::F32, 0)), &["name of tensor 1", "is empty"]);
}

#[test]
fn rejects_a_key_that_is_there_twice() {
    let file = File::new().entry("a.key", BOOL, &[1]).entry("a.key", U8, &[1]);
    assert_says(&invalid(&file), &["metadata key \"a.key\"", "twice"]);
}

#[test]
fn rejects_a_tensor_that_is_there_twice() {
    let file = File::new().tensor("w", &[8], TensorType::F32, 0).tensor("w", &[8], TensorType::F32, 32).data(64);
    assert_says(&invalid(&file), &["tensor \"w\"", "twice"]);
}

#[test]
fn rejects_tensors_that_overlap() {
    let file = File::new().tensor("b", &[9], TensorType::F32, 0).tensor("a", &[8], TensorType::F32, 32).data(64);
    assert_says(&invalid(&file), &["tensor \"a\" offset", "is 32", "inside tensor \"b\"", "ends at 36"]);
    let file = File::new().tensor("b", &[1], TensorType::F32, 0).tensor("a", &[1], TensorType::F32, 0).data(64);
    assert_says(&invalid(&file), &["tensor \"a\" offset", "inside tensor \"b\""]);
}

#[test]
fn tensors_may_touch_but_not_share_a_byte() {
    let file = |offset| {
        File::new()
            .entry("general.alignment", U32, &1u32.to_le_bytes())
            .tensor("a", &[2], TensorType::F16, 0)
            .tensor("b", &[2], TensorType::F16, offset)
            .data(64)
    };
    assert!(parse(&file(4).bytes(), &[3]).is_ok());
    assert_says(&invalid(&file(3)), &["tensor \"b\" offset", "is 3", "inside tensor \"a\"", "ends at 4"]);
}

#[test]
fn rejects_a_misaligned_tensor() {
    let file = File::new().tensor("w", &[8], TensorType::F32, 33).data(96);
    assert_says(&invalid(&file), &["tensor \"w\" offset", "is 33", "alignment, 32"]);
}

#[test]
fn rejects_a_tensor_that_ends_past_2_to_the_64() {
    for offset in [u64::MAX - 31, u64::MAX - 63] {
        let file = File::new().tensor("w", &[8], TensorType::F32, offset);
        assert_says(&invalid(&file), &["tensor \"w\" offset", &format!("is {offset}"), "2^64"]);
    }
}

#[test]
fn rejects_dimensions_whose_product_overflows() {
    for dims in [vec![1 << 32, 1 << 32], vec![1 << 62], vec![u64::MAX; 4]] {
        let file = File::new().tensor("w", &dims, TensorType::F32, 0);
        assert_says(&invalid(&file), &["tensor \"w\" dimensions", &format!("{dims:?}"), "2^64"]);
    }
}

#[test]
fn rejects_dimensions_of_zero() {
    let file = File::new().tensor("w", &[32, 0], TensorType::Q4_0, 0);
    assert_says(&invalid(&file), &["tensor \"w\" dimensions", "[32, 0]", "none may be 0"]);
}

#[test]
fn rejects_a_rank_of_0_or_more_than_4() {
    for rank in [0, 5, 1000] {
        let file = File::new().tensor("w", &vec![1; rank], TensorType::F32, 0);
        assert_says(&invalid(&file), &["tensor \"w\" rank", &format!("is {rank},"), "1 to 4"]);
    }
}

#[test]
fn rejects_rows_that_are_no_whole_blocks() {
    let file = File::new().tensor("w", &[48, 2], TensorType::Q4_0, 0);
    assert_says(&invalid(&file), &["tensor \"w\" dimensions", "[48, 2]", "Q4_0", "blocks of 32"]);
    let file = File::new().tensor("w", &[128, 2], TensorType::Q6_K, 0);
    assert_says(&invalid(&file), &["tensor \"w\" dimensions", "[128, 2]", "Q6_K", "blocks of 256"]);
}

#[test]
fn names_the_tensor_and_the_type_that_is_not_supported() {
    let file = File::new().raw_tensor(b"blk.0.ffn_up.weight", &[256], 21, 0);
    assert_says(&unsupported(&file), &["tensor \"blk.0.ffn_up.weight\"", "its type is 21 (IQ3_S)", "F32, F16, Q4_0"]);
    let file = File::new().raw_tensor(b"w", &[256], 12345, 0);
    assert_says(&unsupported(&file), &["tensor \"w\"", "its type is 12345;"]);
}

#[test]
fn cuts_and_escapes_hostile_names_in_messages() {
    let file = File::new().entry(&"\n".repeat(100_000), 99, &[]);
    let message = invalid(&file);
    assert!(message.len() < 300, "{} bytes", message.len());
    assert_says(&message, &[r"\n\n\n", "..."]);
}

#[test]
fn says_where_a_file_ends_that_is_cut_anywhere() {
    let bytes = File::example().bytes();
    for length in 0..bytes.len() {
        let error = error_of(&bytes[..length]);
        assert_eq!(error.code(), "truncated_file", "{length}: {error}");
    }
    let cut = |length: usize| error_of(&bytes[..length]).to_string();
    assert_says(&cut(0), &["magic", "after 0 bytes"]);
    assert_says(&cut(6), &["version", "after 6 bytes"]);
    assert_says(&cut(26), &["metadata key 1 of 5"]);
    assert_says(&cut(59), &["value of \"general.name\"", "4 before the end of a string"]);
    let total = bytes.len();
    let early = format!("after {} of {total} bytes, 1 too early", total - 1);
    assert_says(&cut(total - 1), &["tensor \"second\"", &early]);
    assert_says(&cut(total - 90), &["tensor \"first\""]);
}

#[test]
fn stays_failed() {
    let mut parser = Parser::new();
    let mut file = File::example();
    file.version = 9;
    let error = parser.push(&file.bytes(), &mut |_| Ok(())).unwrap_err();
    assert_eq!(parser.push(&File::example().bytes(), &mut |_| panic!("an event")), Err(error.clone()));
    assert_eq!(parser.finish(), Err(error));
}

#[test]
fn hands_on_what_the_sink_returns() {
    for failing in ["header", "data", "end"] {
        let mut parser = Parser::new();
        let mut sink = |event: Event<'_>| match (event, failing) {
            (Event::Header(_), "header") | (Event::TensorData { .. }, "data") | (Event::TensorEnd { .. }, "end") => {
                Err(Error::Cancelled)
            }
            _ => Ok(()),
        };
        assert_eq!(parser.push(&File::example().bytes(), &mut sink), Err(Error::Cancelled));
        assert_eq!(parser.finish(), Err(Error::Cancelled));
    }
}
