//! `ec_transfer_params`, as text and as any JSON: what passes is sound.

use chiasm_core::announcement::{
    Announcement, AnnouncementError, Expectation, ParamsLimits, RemoteAnnouncement,
    parse_params_text,
};
use chiasm_core::dtype::Dtype;

use crate::input::Input;
use crate::json;

const FIELDS: &[&str] =
    &["peer_host", "peer_port", "size_bytes", "shape", "modality", "metadata", "item_indices"];

pub(crate) fn text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse_params_text(&text, &ParamsLimits::default()) {
        Ok(params) => {
            for (_, announcement) in &params.items {
                check(announcement, &Input::new(&[]));
            }
        }
        Err(error) => assert!(error.to_string().len() < 2048),
    }
}

pub(crate) fn value(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut object = json::object(&mut input, FIELDS, 2);
    // Else next to nothing is complete.
    for (field, value) in [
        ("peer_host", serde_json::json!("10.0.0.1")),
        ("peer_port", serde_json::json!(5601)),
        ("shape", serde_json::json!([input.size(), input.size()])),
        ("size_bytes", serde_json::json!(input.size())),
    ] {
        if input.flag() {
            object.insert(field.to_owned(), value);
        }
    }
    let value = serde_json::Value::Object(object);
    check(&Announcement::parse(&value), &input);
}

fn check(announcement: &Result<Announcement, AnnouncementError>, rest: &Input<'_>) {
    match announcement {
        Ok(Announcement::Remote(remote)) => check_remote(remote, rest),
        Ok(Announcement::MetadataOnly) => {}
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() < 2048 && !text.contains('\n'), "{text}");
        }
    }
}

fn check_remote(remote: &RemoteAnnouncement, rest: &Input<'_>) {
    assert!(remote.rows > 0 && remote.width > 0 && remote.size_bytes > 0);
    let text = remote.source.to_string();
    assert_eq!(text.parse().ok().as_ref(), Some(&remote.source), "{text}");
    let mut input = rest.clone();
    for dtype in [None, Some(*input.pick(Dtype::ALL))] {
        let expected = Expectation {
            rows: input.flag().then_some(remote.rows),
            width: input.flag().then(|| u32::from(input.byte())),
            dtype,
            block_size_bytes: input.size(),
            region_blocks: u32::try_from(input.size()).unwrap_or(u32::MAX),
        };
        let Ok(blocks) = remote.check(&expected) else { continue };
        // What passes fits, fills its blocks, and is of the model's width.
        assert!(blocks <= expected.region_blocks);
        assert_eq!(
            u64::from(blocks).checked_mul(expected.block_size_bytes),
            Some(remote.size_bytes)
        );
        assert!(expected.width.is_none_or(|width| width == remote.width));
        let tensor = |dtype: &Dtype| {
            let bytes = dtype.bytes_of(remote.rows, remote.width);
            bytes.is_some_and(|bytes| {
                bytes <= remote.size_bytes
                    && bytes.div_ceil(expected.block_size_bytes) == u64::from(blocks)
            })
        };
        match dtype {
            Some(dtype) => assert!(tensor(&dtype)),
            None => assert!(Dtype::ALL.iter().any(tensor)),
        }
    }
}
