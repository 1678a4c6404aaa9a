//! Writes URLs, and their parts, as Go's `URL.String`, `EscapedPath`, `Hostname` and `Port` do.

use std::fmt::Write;

use super::{Part, Url, is_host_byte, unescape_part};

/// The part of a URL that is written, which decides what is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Host,
    User,
    Path,
    Fragment,
}

impl Url {
    /// Returns the URL as `URL.String` writes it. Two URLs are equal in CEL if these are.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if self.opaque.is_empty() {
            self.write_authority(&mut out);
            out.push_str(&self.escaped_path());
        } else {
            out.push_str(&self.opaque);
        }
        if self.empty_query || !self.query.is_empty() {
            out.push('?');
            out.push_str(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            out.push_str(&normalise_part(&self.fragment, Mode::Fragment));
        }
        out
    }

    fn write_authority(&self, out: &mut String) {
        let empty = self.host.is_empty() && self.user.is_none();
        if empty && (self.scheme.is_empty() || self.without_host || self.path.is_empty()) {
            return;
        }
        out.push_str("//");
        if let Some(user) = &self.user {
            out.push_str(&escape_part(&user.name, Mode::User));
            if let Some(password) = &user.password {
                out.push(':');
                out.push_str(&escape_part(password, Mode::User));
            }
            out.push('@');
        }
        out.push_str(&escape_part(&self.host, Mode::Host));
    }

    /// Returns the path as `EscapedPath` does: as written, if that is a valid way to escape it.
    #[must_use]
    pub fn escaped_path(&self) -> String {
        normalise_part(&self.path, Mode::Path)
    }

    /// Returns the host without its port, and without the brackets of an IP address.
    #[must_use]
    pub fn hostname(&self) -> &[u8] {
        let (host, _) = self.host_and_port();
        host.strip_prefix(b"[")
            .and_then(|inner| inner.strip_suffix(b"]"))
            .unwrap_or(host)
    }

    /// Returns the digits of the port; empty if there is none.
    #[must_use]
    pub fn port(&self) -> &[u8] {
        self.host_and_port().1
    }

    fn host_and_port(&self) -> (&[u8], &[u8]) {
        let colon = self.host.iter().rposition(|byte| *byte == b':');
        let split = colon.and_then(|colon| self.host.split_at_checked(colon));
        match split {
            Some((host, [_, port @ ..])) if port.iter().all(u8::is_ascii_digit) => (host, port),
            _ => (&self.host, &[]),
        }
    }
}

/// Returns a part as written, if that is a valid way to escape it. Otherwise escapes it again.
fn normalise_part(written: &str, mode: Mode) -> String {
    let valid = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !is_escaped(byte, mode);
    match unescape_part(written, Part::Other) {
        Ok(bytes) if !written.bytes().all(valid) => escape_part(&bytes, mode),
        _ => written.to_owned(),
    }
}

fn escape_part(bytes: &[u8], mode: Mode) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if is_escaped(*byte, mode) {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        } else {
            out.push(char::from(*byte));
        }
    }
    out
}

/// Go's `shouldEscape`.
fn is_escaped(byte: u8, mode: Mode) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    match mode {
        Mode::Host => !is_host_byte(byte),
        Mode::User => !b"$&+,;=".contains(&byte),
        Mode::Path => !b"$&+,/:;=@".contains(&byte),
        Mode::Fragment => !b"$&+,/:;=?@!()*".contains(&byte),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::parse;

    /// What `URL.String`, `EscapedPath`, `Hostname` and `Port` of Go 1.26 return.
    #[test]
    fn urls_are_written_as_go_writes_them() {
        for (text, written, path, hostname, port) in [
            (
                "https://x.org/a%20b?q=%41",
                "https://x.org/a%20b?q=%41",
                "/a%20b",
                "x.org",
                "",
            ),
            (
                "https://x.org/a b",
                "https://x.org/a%20b",
                "/a%20b",
                "x.org",
                "",
            ),
            ("https://x.org/", "https://x.org/", "/", "x.org", ""),
            ("https://u@x.org/", "https://u@x.org/", "/", "x.org", ""),
            (
                "https://u:p%3a@x.org",
                "https://u:p%3A@x.org",
                "",
                "x.org",
                "",
            ),
            ("https://@x.org/", "https://@x.org/", "/", "x.org", ""),
            (
                "https://x.org:/%2f",
                "https://x.org:/%2f",
                "/%2f",
                "x.org",
                "",
            ),
            (
                "https://x.org:8080/ü?ü=ß#ü ",
                "https://x.org:8080/%C3%BC?ü=ß#%C3%BC%20",
                "/%C3%BC",
                "x.org",
                "8080",
            ),
            (
                "https://x.org/[x]!'()*",
                "https://x.org/[x]!'()*",
                "/[x]!'()*",
                "x.org",
                "",
            ),
            (
                "https://x.org/a\"b[",
                "https://x.org/a%22b%5B",
                "/a%22b%5B",
                "x.org",
                "",
            ),
            ("mailto:a@b?c#d", "mailto:a@b?c#d", "", "", ""),
            ("file:/a", "file:/a", "/a", "", ""),
            ("file:///a", "file:///a", "/a", "", ""),
            ("x://", "x:", "", "", ""),
            ("x://?", "x:?", "", "", ""),
            ("x:///y", "x:///y", "/y", "", ""),
            ("*", "*", "*", "", ""),
            ("/a/../b;c", "/a/../b;c", "/a/../b;c", "", ""),
            ("//x/y", "//x/y", "/y", "x", ""),
            ("https://x.org?", "https://x.org?", "", "x.org", ""),
            ("https://x.org??", "https://x.org??", "", "x.org", ""),
            ("https://x.org/#", "https://x.org/", "/", "x.org", ""),
            (
                "https://x.org/#a%20b?[!]",
                "https://x.org/#a%20b?[!]",
                "/",
                "x.org",
                "",
            ),
            (
                "https://ü.org:80",
                "https://%C3%BC.org:80",
                "",
                "ü.org",
                "80",
            ),
            (
                "https://[::1]:8080/",
                "https://[::1]:8080/",
                "/",
                "::1",
                "8080",
            ),
            ("HTTP://a<b>\"/", "http://a<b>\"/", "/", "a<b>\"", ""),
            ("https://u%40x:@a", "https://u%40x:@a", "", "a", ""),
            ("/%2A", "/%2A", "/%2A", "", ""),
            (
                "https://x.org/a%2Fb c",
                "https://x.org/a/b%20c",
                "/a/b%20c",
                "x.org",
                "",
            ),
            ("http:?a", "http:?a", "", "", ""),
            (
                "https://a/~-_.$&+,/:;=@",
                "https://a/~-_.$&+,/:;=@",
                "/~-_.$&+,/:;=@",
                "a",
                "",
            ),
            (
                "https://a/`^\\{}|",
                "https://a/%60%5E%5C%7B%7D%7C",
                "/%60%5E%5C%7B%7D%7C",
                "a",
                "",
            ),
        ] {
            let url = parse(text).unwrap();
            assert_eq!(url.text(), written, "{text}");
            assert_eq!(url.escaped_path(), path, "{text}");
            assert_eq!(url.hostname(), hostname.as_bytes(), "{text}");
            assert_eq!(url.port(), port.as_bytes(), "{text}");
        }
    }
}
