//! Reads names and the texts in them.

use super::Fault;
use super::der::{Reader, tag};
use crate::GoRelease;

/// Checks an issuer or a subject.
pub(super) fn check_name(name: &[u8], go: GoRelease) -> Result<(), Fault> {
    let malformed = || Fault::new("x509: invalid RDNSequence");
    let mut sets = Reader::new(name)
        .enter(tag::SEQUENCE)
        .ok_or_else(malformed)?;
    while !sets.is_empty() {
        let mut set = sets.enter(tag::SET).ok_or_else(malformed)?;
        while !set.is_empty() {
            check_attribute(&mut set, go)?;
        }
    }
    Ok(())
}

fn invalid_attribute(what: &str) -> Fault {
    Fault::new(format!(
        "x509: invalid RDNSequence: invalid attribute{what}"
    ))
}

fn check_attribute(set: &mut Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    let mut attribute = set
        .enter(tag::SEQUENCE)
        .ok_or_else(|| invalid_attribute(""))?;
    attribute
        .object_identifier()
        .ok_or_else(|| invalid_attribute(" type"))?;
    let value = attribute.any().ok_or_else(|| invalid_attribute(" value"))?;
    check_text(value.tag, value.content, go)
}

fn check_text(tag: u8, text: &[u8], go: GoRelease) -> Result<(), Fault> {
    let (holds, name) = match tag {
        // Read as Latin-1, which has a character for each byte.
        tag::T61_STRING => (true, ""),
        tag::PRINTABLE_STRING => (text.iter().all(is_printable), "PrintableString"),
        tag::UTF8_STRING => (std::str::from_utf8(text).is_ok(), "UTF-8 string"),
        tag::BMP_STRING => (is_bmp(text, go), "BMPString"),
        tag::IA5_STRING => (text.is_ascii(), "IA5String"),
        tag::NUMERIC_STRING => {
            let numeric = |byte: &u8| byte.is_ascii_digit() || *byte == b' ';
            (text.iter().all(numeric), "NumericString")
        }
        other => {
            let what = format!(" value: unsupported string type: {other}");
            return Err(invalid_attribute(&what));
        }
    };
    if holds {
        Ok(())
    } else {
        Err(invalid_attribute(&format!(" value: invalid {name}")))
    }
}

/// Whether a byte is of a PrintableString. Go also allows `*` and `&`, which real certificates have.
fn is_printable(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(byte)
}

fn is_bmp(text: &[u8], go: GoRelease) -> bool {
    if !text.len().is_multiple_of(2) {
        return false;
    }
    // A terminator is dropped, and does not matter here: it is no reserved character.
    let reserved = |pair: &[u8]| {
        let point = pair
            .iter()
            .fold(0_u16, |point, byte| (point << 8) | u16::from(*byte));
        matches!(point, 0xd800..=0xdfff | 0xfdd0..=0xfdef | 0xfffe | 0xffff)
    };
    go < GoRelease::V1_25 || !text.chunks(2).any(reserved)
}
