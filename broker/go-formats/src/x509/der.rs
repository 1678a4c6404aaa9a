//! Reads DER as `cryptobyte` does: low tags only, lengths in their shortest form.

/// The tags of universal types that a certificate contains.
pub(super) mod tag {
    pub(in crate::x509) const BOOLEAN: u8 = 0x01;
    pub(in crate::x509) const INTEGER: u8 = 0x02;
    pub(in crate::x509) const BIT_STRING: u8 = 0x03;
    pub(in crate::x509) const OCTET_STRING: u8 = 0x04;
    pub(in crate::x509) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(in crate::x509) const UTF8_STRING: u8 = 0x0c;
    pub(in crate::x509) const NUMERIC_STRING: u8 = 0x12;
    pub(in crate::x509) const PRINTABLE_STRING: u8 = 0x13;
    pub(in crate::x509) const T61_STRING: u8 = 0x14;
    pub(in crate::x509) const IA5_STRING: u8 = 0x16;
    pub(in crate::x509) const UTC_TIME: u8 = 0x17;
    pub(in crate::x509) const GENERALIZED_TIME: u8 = 0x18;
    pub(in crate::x509) const BMP_STRING: u8 = 0x1e;
    pub(in crate::x509) const SEQUENCE: u8 = 0x30;
    pub(in crate::x509) const SET: u8 = 0x31;

    /// A context-specific tag of a primitive value.
    pub(in crate::x509) const fn context(number: u8) -> u8 {
        0x80 | number
    }

    /// A context-specific tag of a constructed value.
    pub(in crate::x509) const fn context_constructed(number: u8) -> u8 {
        0xa0 | number
    }
}

/// Reads one element after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

/// An element of DER.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    /// The element with its tag and length.
    pub(super) whole: &'a [u8],
    pub(super) content: &'a [u8],
}

/// An object identifier, by its numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectIdentifier(pub(super) Vec<u32>);

impl std::fmt::Display for ObjectIdentifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next element has that tag.
    pub(super) fn has_next(self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// Reads the next element, whatever its tag.
    pub(super) fn any(&mut self) -> Option<Element<'a>> {
        let (tag, short) = (*self.0.first()?, *self.0.get(1)?);
        // A tag of several bytes is not supported.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (header, length) = if short & 0x80 == 0 {
            (2, usize::from(short))
        } else {
            let count = usize::from(short & 0x7f);
            let digits = self.0.get(2..2 + count).filter(|_| count <= 4)?;
            // The length has no leading zero, and needs the long form.
            let length = digits
                .iter()
                .fold(0, |length, digit| (length << 8) | usize::from(*digit));
            if digits.first().is_none_or(|digit| *digit == 0) || length < 0x80 {
                return None;
            }
            (2 + count, length)
        };
        let end = header.checked_add(length)?;
        let element = Element {
            tag,
            whole: self.0.get(..end)?,
            content: self.0.get(header..end)?,
        };
        self.0 = self.0.get(end..)?;
        Some(element)
    }

    /// Reads the next element if it has that tag.
    pub(super) fn element(&mut self, tag: u8) -> Option<Element<'a>> {
        self.any().filter(|element| element.tag == tag)
    }

    /// Reads the content of the next element if it has that tag.
    pub(super) fn content(&mut self, tag: u8) -> Option<&'a [u8]> {
        Some(self.element(tag)?.content)
    }

    /// Reads into the next element if it has that tag.
    pub(super) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.content(tag).map(Self)
    }

    /// Reads into an optional element. The outer result is `None` if the element is malformed, the
    /// inner one if it is absent.
    pub(super) fn enter_optional(&mut self, tag: u8) -> Option<Option<Self>> {
        if self.has_next(tag) {
            self.enter(tag).map(Some)
        } else {
            Some(None)
        }
    }

    pub(super) fn boolean(&mut self) -> Option<bool> {
        match self.content(tag::BOOLEAN)? {
            [0] => Some(false),
            [0xff] => Some(true),
            _ => None,
        }
    }

    /// Reads an integer of any length, in its shortest form.
    pub(super) fn integer(&mut self) -> Option<&'a [u8]> {
        self.integer_of(tag::INTEGER)
    }

    /// Reads an integer that fits 64 bits.
    pub(super) fn integer_of_64_bits(&mut self) -> Option<i64> {
        self.integer_of_64_bits_of(tag::INTEGER)
    }

    /// Reads an integer with another tag that fits 64 bits.
    pub(super) fn integer_of_64_bits_of(&mut self, tag: u8) -> Option<i64> {
        let digits = self.integer_of(tag).filter(|digits| digits.len() <= 8)?;
        let sign = if is_negative(digits) { -1 } else { 0 };
        Some(
            digits
                .iter()
                .fold(sign, |number, digit| (number << 8) | i64::from(*digit)),
        )
    }

    fn integer_of(&mut self, tag: u8) -> Option<&'a [u8]> {
        let digits = self.content(tag)?;
        match digits {
            [] => None,
            [0, second, ..] if second & 0x80 == 0 => None,
            [0xff, second, ..] if second & 0x80 != 0 => None,
            _ => Some(digits),
        }
    }

    /// Reads a bit string, shifted to the right so that its last bit is the lowest one.
    pub(super) fn bit_string(&mut self) -> Option<Vec<u8>> {
        let (padding, bits) = self.content(tag::BIT_STRING)?.split_first()?;
        let padding = u32::from(*padding);
        let last = bits.last();
        if padding > 7
            || (last.is_none() && padding > 0)
            || last.is_some_and(|last| u32::from(*last) & ((1 << padding) - 1) != 0)
        {
            return None;
        }
        let mut carry = 0;
        Some(
            bits.iter()
                .map(|byte| {
                    let pair = (carry << 8) | u32::from(*byte);
                    carry = u32::from(*byte);
                    (pair >> padding) as u8
                })
                .collect(),
        )
    }

    pub(super) fn object_identifier(&mut self) -> Option<ObjectIdentifier> {
        let mut rest = self.content(tag::OBJECT_IDENTIFIER)?.iter();
        let first = base_128(&mut rest)?;
        let mut numbers = if first < 80 {
            vec![first / 40, first % 40]
        } else {
            vec![2, first - 80]
        };
        while !rest.as_slice().is_empty() {
            numbers.push(base_128(&mut rest)?);
        }
        Some(ObjectIdentifier(numbers))
    }
}

/// Whether the digits are those of a negative number.
pub(super) fn is_negative(digits: &[u8]) -> bool {
    digits.first().is_some_and(|digit| digit & 0x80 != 0)
}

/// Reads one number of an object identifier. It has 31 bits at most.
fn base_128(bytes: &mut std::slice::Iter<'_, u8>) -> Option<u32> {
    let mut number = 0_u32;
    for index in 0..5 {
        let byte = *bytes.next()?;
        if number >= 1 << 24 || (index == 0 && byte == 0x80) {
            return None;
        }
        number = (number << 7) | u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_shortest_form() {
        let long = [&[4, 0x81, 0x80][..], &[0; 0x80]].concat();
        assert_eq!(Reader::new(&long).any().unwrap().content.len(), 0x80);
        for broken in [
            &[4, 0x81, 1, 0][..],
            &[4, 0x82, 0, 0x80],
            &[4, 0x80],
            &[4, 0x85, 0, 0, 0, 0, 1, 0],
            &[4, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[4, 2, 0],
            &[0x1f, 1, 0],
            &[4],
            &[],
        ] {
            assert!(Reader::new(broken).any().is_none(), "{broken:x?}");
        }
    }

    #[test]
    fn numbers_and_bits_are_read_as_go_reads_them() {
        let integer = |bytes: &[u8]| Reader::new(bytes).integer_of_64_bits();
        assert_eq!(integer(&[2, 1, 0xff]), Some(-1));
        assert_eq!(integer(&[2, 2, 0, 0x80]), Some(128));
        assert_eq!(integer(&[2, 8, 0x80, 0, 0, 0, 0, 0, 0, 0]), Some(i64::MIN));
        for broken in [&[2, 0][..], &[2, 2, 0, 1], &[2, 2, 0xff, 0x80]] {
            assert_eq!(integer(broken), None, "{broken:x?}");
        }
        let bits = |bytes: &[u8]| Reader::new(bytes).bit_string();
        assert_eq!(bits(&[3, 3, 4, 0xab, 0xc0]), Some(vec![0x0a, 0xbc]));
        assert_eq!(bits(&[3, 1, 0]), Some(vec![]));
        for broken in [&[3, 0][..], &[3, 1, 1], &[3, 2, 4, 1], &[3, 2, 8, 0]] {
            assert_eq!(bits(broken), None, "{broken:x?}");
        }
        let oid = |bytes: &[u8]| {
            Reader::new(bytes)
                .object_identifier()
                .map(|oid| oid.to_string())
        };
        assert_eq!(oid(&[6, 3, 0x55, 0x1d, 0x13]).as_deref(), Some("2.5.29.19"));
        assert_eq!(oid(&[6, 2, 0x88, 0x37]).as_deref(), Some("2.999"));
        for broken in [
            &[6, 0][..],
            &[6, 1, 0x80],
            &[6, 2, 0x2a, 0x81],
            &[6, 6, 0x2a, 0x90, 0x80, 0x80, 0x80, 0],
        ] {
            assert_eq!(oid(broken), None, "{broken:x?}");
        }
    }
}
