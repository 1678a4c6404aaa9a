//! Facts about a fleet as HTML: one file to send, or the pages of a viewer on the reader's machine.
//!
//! There is no script and no external asset, so the policy of the content allows neither.

use keyferry_fleet::facts::Fleet;

/// A page that the viewer answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The whole HTML document.
    pub html: String,
    /// Whether what was asked for exists: the status is 404 if not.
    pub exists: bool,
}

/// Renders the page at `path`, below the viewer's session and without a leading `/`, such as `fleet` or
/// `target/prod`. `query` is the URL's query, percent-encoded.
#[must_use]
pub fn viewer_page(fleet: &Fleet, path: &str, query: &str) -> Page {
    let _ = (fleet, path, query);
    Page {
        html: String::new(),
        exists: false,
    }
}

/// Renders the one file with everything: the fleet, endings, keys, denials, and a section for each
/// target and tenant.
#[must_use]
pub fn whole_file(fleet: &Fleet) -> String {
    let _ = fleet;
    String::new()
}

/// The `Content-Security-Policy` of the viewer's pages, with the hash of the one style sheet.
#[must_use]
pub fn viewer_content_security_policy() -> String {
    String::new()
}
