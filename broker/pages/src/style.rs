//! The one style sheet, and the policy that allows nothing else.
//!
//! Only this file may write markup that is not escaped; what it writes is a constant.

use std::sync::LazyLock;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, html};

const STYLE_SHEET: &str = include_str!("style.css");

/// The source that the policy allows: the hash of the sheet (CSP level 3, section 2.3.1).
static STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| {
    let hash = digest::digest(&digest::SHA256, STYLE_SHEET.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(hash))
});

/// The element with the sheet. Its text is what the hash is about, to the byte.
pub(crate) fn style_element() -> Markup {
    html! { style { (PreEscaped(STYLE_SHEET)) } }
}

/// The policy of the viewer's pages. `form-action`, `base-uri` and `frame-ancestors` do not fall
/// back to `default-src`, so each is named.
pub(crate) fn viewer_policy() -> String {
    format!(
        "default-src 'none'; style-src {}; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
        *STYLE_SOURCE
    )
}

/// The policy inside the file. A `meta` element cannot set `frame-ancestors`.
pub(crate) fn file_policy() -> String {
    format!(
        "default-src 'none'; style-src {}; form-action 'none'; base-uri 'none'",
        *STYLE_SOURCE
    )
}

#[cfg(test)]
mod tests {
    use super::{STYLE_SHEET, file_policy, style_element, viewer_policy};

    #[test]
    fn the_element_holds_the_sheet_that_was_hashed() {
        assert_eq!(
            style_element().into_string(),
            format!("<style>{STYLE_SHEET}</style>")
        );
        assert!(!STYLE_SHEET.contains('<'), "nothing in it ends the element");
    }

    #[test]
    fn the_sheet_fetches_nothing() {
        for part in ["url(", "@import", "@font-face", "http", "expression"] {
            assert!(!STYLE_SHEET.contains(part), "{part}");
        }
    }

    #[test]
    fn no_policy_allows_a_script() {
        for policy in [viewer_policy(), file_policy()] {
            assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
            assert!(
                !policy.contains("script") && !policy.contains("unsafe"),
                "{policy}"
            );
        }
    }
}
