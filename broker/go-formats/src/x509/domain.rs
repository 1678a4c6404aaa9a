//! Checks names of domains and mailboxes as Go does.

use crate::GoRelease;

/// Whether Go takes bytes as the name of a domain: labels that are not empty, of visible ASCII
/// characters. No name at all also passes.
pub(super) fn is_domain(name: &[u8], go: GoRelease) -> bool {
    // Go 1.22 does not see an empty label at the beginning.
    let name = match name {
        [b'.', rest @ ..] if !rest.is_empty() && go < GoRelease::V1_23 => rest,
        name => name,
    };
    name.is_empty()
        || name
            .split(|byte| *byte == b'.')
            .all(|label| !label.is_empty() && label.iter().all(|byte| byte.is_ascii_graphic()))
}

/// Whether Go takes bytes as a domain that constrains names: it may begin with a dot.
pub(super) fn is_domain_constraint(name: &[u8], go: GoRelease) -> bool {
    let name = match name {
        b"." if go.has_fixes_of_2025() => return false,
        [b'.', name @ ..] => name,
        name => name,
    };
    is_domain(name, go)
}

/// Whether Go takes bytes as a mailbox (RFC 2821, with what RFC 3696 adds).
pub(super) fn is_mailbox(text: &[u8], go: GoRelease) -> bool {
    let domain = match text {
        [b'"', quoted @ ..] => after_quoted_string(quoted),
        atoms => after_atoms(atoms),
    };
    domain
        .and_then(|rest| rest.strip_prefix(b"@"))
        .is_some_and(|domain| is_domain(domain, go))
}

/// Returns what follows the closing quote.
fn after_quoted_string(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        rest = match rest {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', 1..=9 | 11 | 12 | 14..=127, rest @ ..] => rest,
            [1..=8 | 11 | 12 | 14..=33 | 35..=91 | 93..=127, rest @ ..] => rest,
            _ => return None,
        };
    }
}

/// Returns what follows the atoms and dots.
fn after_atoms(mut rest: &[u8]) -> Option<&[u8]> {
    let mut local = Vec::new();
    loop {
        let (byte, after) = match rest {
            [b'\\', byte, after @ ..] => (*byte, after),
            [b'\\'] => return None,
            [byte, after @ ..]
                if byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(byte) =>
            {
                (*byte, after)
            }
            _ => break,
        };
        local.push(byte);
        rest = after;
    }
    let dots = local.first() == Some(&b'.')
        || local.last() == Some(&b'.')
        || local.windows(2).any(|pair| pair == b"..");
    (!local.is_empty() && !dots).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_have_visible_labels() {
        for name in ["", "a", "a.b", "[::1]:80", "a_b", "-"] {
            assert!(is_domain(name.as_bytes(), GoRelease::V1_22), "{name}");
        }
        for name in [".", "a.", ".a", "a..b", "a b", "\u{7f}", "ü"] {
            assert!(!is_domain(name.as_bytes(), GoRelease::V1_23), "{name}");
        }
        assert!(is_domain(b".a", GoRelease::V1_22) && !is_domain(b".", GoRelease::V1_22));
        let constraint = |name: &str, go| is_domain_constraint(name.as_bytes(), go);
        assert!(constraint(".a", GoRelease::V1_26) && !constraint("..a", GoRelease::V1_26));
        assert!(constraint(".", GoRelease::V1_25) && !constraint(".", GoRelease::V1_25Fixed));
    }

    #[test]
    fn mailboxes_are_those_that_go_takes() {
        for text in ["a@b", "a.b@", r"a\ b@c", r#""a \" b"@c"#, r#"""@"#, "a@b:1"] {
            assert!(is_mailbox(text.as_bytes(), GoRelease::V1_23), "{text}");
        }
        for text in [
            "",
            "@",
            "a",
            "a@b.",
            ".a@b",
            "a.@b",
            "a..b@c",
            "a b@c",
            r"a\",
            r#""a@b"#,
            r#""a"b@c"#,
            "a@b@c ",
            "\"\n\"@a",
            "\"\\\0\"@a",
        ] {
            assert!(!is_mailbox(text.as_bytes(), GoRelease::V1_23), "{text}");
        }
    }
}
