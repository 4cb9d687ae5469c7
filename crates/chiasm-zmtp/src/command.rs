//! Commands: READY and ERROR of the handshake, PING and PONG of a connection in use.
//!
//! SUBSCRIBE, CANCEL and every command that we do not know close the connection: none has a
//! meaning between a ROUTER and a DEALER, and a peer that sends one speaks something else.

use crate::close_reason::{CloseReason, printable};
use crate::frame::{Header, Kind};
use crate::limits::{MAX_IDENTITY_BYTES, MAX_PING_CONTEXT_BYTES};
use crate::socket_type::Role;

/// A command from the peer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Command<'a> {
    /// The properties that matter here.
    Ready {
        socket_type: &'a [u8],
        identity: &'a [u8],
    },
    Ping {
        context: &'a [u8],
    },
    Pong,
    Error {
        reason: &'a [u8],
    },
}

/// Parses the body of a command frame.
pub(crate) fn parse(body: &[u8]) -> Result<Command<'_>, CloseReason> {
    let bad = |name: &[u8], problem| CloseReason::BadCommand { name: printable(name), problem };
    let mut rest = body;
    let name = take_short(&mut rest).ok_or_else(|| bad(body, "its name is cut off"))?;
    match name {
        b"READY" => ready(rest).map_err(|problem| bad(name, problem)),
        b"PING" => match rest.split_first_chunk::<2>() {
            // The time to live is ignored: it would let the peer set when we give up. How long a
            // silence we bear is ours to say (`heartbeat_timeout`), and our own PINGs measure it.
            Some((_time_to_live, context)) if context.len() <= MAX_PING_CONTEXT_BYTES => {
                Ok(Command::Ping { context })
            }
            Some(_) => Err(bad(name, "its context is longer than 16 bytes")),
            None => Err(bad(name, "it has no time to live")),
        },
        b"PONG" => Ok(Command::Pong),
        b"ERROR" => match take_short(&mut rest) {
            Some(reason) => Ok(Command::Error { reason }),
            None => Err(bad(name, "its reason is cut off")),
        },
        _ => Err(bad(name, "not a command between a ROUTER and a DEALER")),
    }
}

/// Parses the properties of READY. Names are case-insensitive, unknown ones are skipped, of a
/// repeated one the last counts.
fn ready(mut rest: &[u8]) -> Result<Command<'_>, &'static str> {
    let mut socket_type = None;
    let mut identity: &[u8] = b"";
    while !rest.is_empty() {
        let name = take_short(&mut rest).ok_or("a property's name is cut off")?;
        let value = take_long(&mut rest).ok_or("a property's value is cut off")?;
        if name.is_empty() {
            return Err("a property has no name");
        } else if name.eq_ignore_ascii_case(b"Socket-Type") {
            socket_type = Some(value);
        } else if name.eq_ignore_ascii_case(b"Identity") {
            identity = value;
        }
    }
    if identity.len() > MAX_IDENTITY_BYTES {
        return Err("its Identity is longer than 255 bytes");
    }
    let socket_type = socket_type.ok_or("it has no Socket-Type")?;
    Ok(Command::Ready { socket_type, identity })
}

/// Takes a field with a one-byte length.
fn take_short<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first()?;
    let (field, after) = after.split_at_checked(usize::from(*length))?;
    *rest = after;
    Some(field)
}

/// Takes a field with a four-byte length.
fn take_long<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (field, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(field)
}

/// Our READY as a whole frame: our type, and an empty identity, so that the peer invents one.
pub(crate) fn ready_frame(role: Role) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", role.name()), ("Identity", "")] {
        body.push(u8::try_from(name.len()).expect("our property names are short"));
        body.extend(name.bytes());
        let length = u32::try_from(value.len()).expect("our property values are short");
        body.extend(length.to_be_bytes());
        body.extend(value.bytes());
    }
    command_frame(&body)
}

/// A PING without context as a whole frame; `time_to_live` is in tenths of a second.
pub(crate) fn ping_frame(time_to_live: u16) -> Vec<u8> {
    let mut body = b"\x04PING".to_vec();
    body.extend(time_to_live.to_be_bytes());
    command_frame(&body)
}

/// The answer to a PING as a whole frame.
pub(crate) fn pong_frame(context: &[u8]) -> Vec<u8> {
    let mut body = b"\x04PONG".to_vec();
    body.extend(context);
    command_frame(&body)
}

fn command_frame(body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(body.len().saturating_add(9));
    Header::write(&mut frame, Kind::Command, body.len());
    frame.extend(body);
    frame
}
