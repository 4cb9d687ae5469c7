//! Decoders of control messages, of region descriptions and of orders to workers: no bytes panic, and
//! what is read is what would be written again.

use chiasm_core::dispatch::Order;
use chiasm_core::wire::{
    AckLimits, DecodeError, ProgressionScan, XferAck, XferDone, XferReq, decode_progression,
    decode_rows,
};

use crate::input::Input;

/// Whoever reads it in a log must not be flooded by it.
fn check_error(error: &DecodeError) {
    let text = error.to_string();
    assert!(text.len() < 1024 && !text.contains('\n'), "{text}");
}

pub(crate) fn request(bytes: &[u8]) {
    match XferReq::decode(bytes) {
        Ok(request) => assert_eq!(XferReq::decode(&request.encode()), Ok(request)),
        Err(error) => check_error(&error),
    }
}

pub(crate) fn ack(bytes: &[u8]) {
    let limits = AckLimits::default();
    match XferAck::decode(bytes, &limits) {
        Ok(ack) => {
            assert!(ack.src_block_indices.len() <= bytes.len());
            assert_eq!(XferAck::decode(&ack.encode(), &limits), Ok(ack));
        }
        Err(error) => check_error(&error),
    }
}

pub(crate) fn done(bytes: &[u8]) {
    match XferDone::decode(bytes) {
        Ok(done) => assert_eq!(XferDone::decode(&done.encode()), Ok(done)),
        Err(error) => check_error(&error),
    }
}

/// The first two bytes are the limit and the slice; the rest is the list.
pub(crate) fn descriptors(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (max_rows, slice) = (u32::from(input.byte()), u32::from(input.byte()) % 7 + 1);
    let list = input.rest();
    let whole = decode_progression(list, max_rows);
    let sliced = ProgressionScan::new(list, max_rows).and_then(|mut scan| {
        loop {
            if let Some(read) = scan.advance(list, slice)? {
                break Ok(read);
            }
        }
    });
    assert_eq!(whole, sliced, "one verdict, however it is cut");
    if let Ok(read) = whole {
        let again = read.encode();
        assert_eq!(decode_progression(&again, max_rows), Ok(read));
        let rows = decode_rows(list).expect("a progression is a list of rows");
        for (index, row) in (0..).zip(rows) {
            assert_eq!(Some(row.expect("each of them").addr), read.addr(index));
        }
    }
}

pub(crate) fn order(bytes: &[u8]) {
    if let Ok(order) = Order::from_bytes(bytes) {
        assert_eq!(order.to_bytes(), bytes, "there is one way to write an order");
    }
}
