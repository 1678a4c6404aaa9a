//! A writer for one flat JSON object. It writes directly because a general serialiser took a
//! quarter of the time of a cached issuance.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::Serialize;

use crate::name::{Namespace, ObjectName};
use crate::request_id::RequestId;

/// The initial capacity: more than most lines need.
const BYTES: usize = 1024;

/// Makes a member's name with its punctuation, ready to be followed by its value.
macro_rules! member {
    ($name:literal) => {
        $crate::audit::object::Member(concat!(",\"", $name, "\":"))
    };
}
pub(super) use member;

/// A member's name with its punctuation. Made by [`member`].
#[derive(Clone, Copy)]
pub(super) struct Member(pub(super) &'static str);

/// An object under construction. Members without a value are omitted.
pub(super) struct Object(Vec<u8>);

impl Object {
    /// Starts an object with its `time` member.
    pub(super) fn at(time: Timestamp) -> Self {
        let mut line = Vec::with_capacity(BYTES);
        line.extend_from_slice(b"{\"time\":");
        let mut object = Self(line);
        object.timestamp(&time);
        object
    }

    /// Closes the object and ends its line.
    pub(super) fn line(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"}\n");
        self.0
    }

    pub(super) fn text(&mut self, member: Member, value: Option<&str>) {
        if let Some(value) = value {
            self.name(member);
            self.string(value);
        }
    }

    /// Writes a constant of Keyferry, which needs no escaping.
    pub(super) fn word(&mut self, member: Member, value: Option<&'static str>) {
        if let Some(value) = value {
            self.plain(member, &[value]);
        }
    }

    /// Writes a request's ID, in hex digits.
    pub(super) fn request(&mut self, member: Member, value: &RequestId) {
        self.plain(member, &[&value.to_string()]);
    }

    pub(super) fn object(&mut self, member: Member, value: Option<&ObjectName>) {
        if let Some(value) = value {
            self.plain(member, &[value.as_str()]);
        }
    }

    /// Writes a namespaced object as `namespace/name`.
    pub(super) fn path(&mut self, member: Member, value: Option<(&Namespace, &ObjectName)>) {
        if let Some((namespace, name)) = value {
            self.plain(member, &[namespace.as_str(), "/", name.as_str()]);
        }
    }

    pub(super) fn time(&mut self, member: Member, value: Option<Timestamp>) {
        if let Some(value) = value {
            self.name(member);
            self.timestamp(&value);
        }
    }

    pub(super) fn number(&mut self, member: Member, value: Option<usize>) {
        if let Some(value) = value {
            self.name(member);
            self.library(&value);
        }
    }

    /// Writes `true`; a false value is omitted.
    pub(super) fn truth(&mut self, member: Member, value: bool) {
        if value {
            self.name(member);
            self.0.extend_from_slice(b"true");
        }
    }

    /// Writes a string whose type guarantees that nothing needs escaping.
    fn plain(&mut self, member: Member, parts: &[&str]) {
        debug_assert!(
            parts.iter().all(|part| is_plain(part)),
            "{parts:?} must be escaped"
        );
        self.name(member);
        self.0.push(b'"');
        for part in parts {
            self.0.extend_from_slice(part.as_bytes());
        }
        self.0.push(b'"');
    }

    fn name(&mut self, Member(name): Member) {
        self.0.extend_from_slice(name.as_bytes());
    }

    fn string(&mut self, value: &str) {
        if !is_plain(value) {
            self.library(value);
            return;
        }
        self.0.push(b'"');
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'"');
    }

    /// RFC 3339, UTC.
    fn timestamp(&mut self, time: &Timestamp) {
        self.0.push(b'"');
        // A write to memory cannot fail.
        let _ = DateTimePrinter::new().print_timestamp(time, &mut self.0);
        self.0.push(b'"');
    }

    fn library(&mut self, value: &(impl Serialize + ?Sized)) {
        // A write to memory cannot fail, and neither strings nor numbers fail to serialise.
        let _ = serde_json::to_writer(&mut self.0, value);
    }
}

/// Whether a string needs no escaping. By RFC 8259 section 7 only quotation marks, backslashes and
/// control characters must be escaped. Hardly any string contains one, so the loop has no early
/// exit.
fn is_plain(text: &str) -> bool {
    !text.bytes().fold(false, |found, byte| {
        found | (byte < 0x20) | (byte == b'"') | (byte == b'\\')
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::Object;
    use crate::name::{Namespace, ObjectName};

    fn read(object: Object) -> Value {
        let line = object.line();
        assert_eq!(
            line.iter().position(|byte| *byte == b'\n'),
            Some(line.len() - 1),
            "one line"
        );
        serde_json::from_slice(&line).unwrap()
    }

    proptest! {
        #[test]
        fn any_text_reads_back_as_it_was(one in any::<String>(), other in "[\\x00-\\x7f]{0,9}", number in any::<usize>()) {
            let mut object = Object::at(Timestamp::UNIX_EPOCH);
            object.text(member!("one"), Some(&one));
            object.text(member!("other"), Some(&other));
            object.number(member!("number"), Some(number));
            prop_assert_eq!(read(object), json!({ "time": "1970-01-01T00:00:00Z", "one": one, "other": other, "number": number }));
        }

        #[test]
        fn any_moment_is_written_as_a_library_writes_it(second in -2_000_000_000_i64..5_000_000_000, nanosecond in 0..1_000_000_000_i32) {
            let time = Timestamp::new(second, nanosecond).unwrap();
            let mut object = Object::at(time);
            object.time(member!("later"), Some(time));
            prop_assert_eq!(read(object), json!({ "time": time, "later": time }));
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut object = Object::at(Timestamp::UNIX_EPOCH);
        object.text(member!("text"), None);
        object.word(member!("word"), None);
        object.object(member!("object"), None);
        object.path(member!("path"), None);
        object.time(member!("moment"), None);
        object.number(member!("number"), None);
        object.truth(member!("truth"), false);
        assert_eq!(object.line(), b"{\"time\":\"1970-01-01T00:00:00Z\"}\n");
    }

    #[test]
    fn names_words_and_a_truth() {
        let mut object = Object::at(Timestamp::UNIX_EPOCH);
        let (namespace, name) = (
            Namespace::new("tenant-a").unwrap(),
            ObjectName::new("prod").unwrap(),
        );
        object.request(member!("id"), &10.into());
        object.word(member!("word"), Some("hit"));
        object.object(member!("object"), Some(&name));
        object.path(member!("path"), Some((&namespace, &name)));
        object.truth(member!("truth"), true);
        let wanted = json!({
            "time": "1970-01-01T00:00:00Z", "id": "000000000000000a", "word": "hit", "object": "prod", "path": "tenant-a/prod", "truth": true
        });
        assert_eq!(read(object), wanted);
    }
}
