//! Bytes as hexadecimal digits.

use std::fmt::Write as _;

/// Why a text is no sequence of hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HexError {
    /// Neither a digit nor white space.
    #[error("byte {position}: {:?} is no hexadecimal digit", char::from(*.found))]
    Digit { position: usize, found: u8 },
    /// The last byte has only one digit.
    #[error("{digits} hexadecimal digits: the last byte has only one")]
    Odd { digits: usize },
}

/// The bytes that `text` spells in digits of either case; ASCII white space is ignored.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, HexError> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high: Option<u8> = None;
    for (position, &found) in text.iter().enumerate() {
        if found.is_ascii_whitespace() {
            continue;
        }
        let digit = digit(found).ok_or(HexError::Digit { position, found })?;
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push(high << 4 | digit),
        }
    }
    match high {
        None => Ok(bytes),
        Some(_) => Err(HexError::Odd { digits: 2 * bytes.len() + 1 }),
    }
}

/// Two lower-case digits per byte.
pub(super) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_either_case_and_white_space_are_read() {
        assert_eq!(decode(b" 00fF\n\t0 9 ").unwrap(), [0x00, 0xff, 0x09]);
        assert!(decode(b"").unwrap().is_empty());
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()).unwrap(), all);
    }

    #[test]
    fn a_wrong_digit_is_named_with_its_position() {
        assert_eq!(
            decode(b"00 0g").unwrap_err().to_string(),
            "byte 4: 'g' is no hexadecimal digit"
        );
        assert_eq!(decode(b"0x00").unwrap_err().to_string(), "byte 1: 'x' is no hexadecimal digit");
        assert_eq!(
            decode(b"000").unwrap_err().to_string(),
            "3 hexadecimal digits: the last byte has only one"
        );
    }
}
