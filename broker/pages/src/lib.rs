//! Facts about a fleet as HTML: one file to send, or the pages of a viewer on the reader's machine.
//!
//! There is no script and no external asset, so the policy of the content allows neither. Text of
//! other parties is one line, escaped, and never part of a link.
//!
//! ```
//! let policy = keyferry_pages::viewer_content_security_policy();
//! assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
//! ```

mod access_table;
mod denials_page;
mod document;
mod empty;
mod expiry_page;
mod fleet_page;
mod keys_page;
mod list;
mod outlet;
mod picture;
mod query;
mod reach_page;
mod style;
mod table;
mod target_page;
mod tenant_page;
mod words;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::Fleet;
use maud::{Markup, html};

use document::{Content, file_document, viewer_document};
use outlet::{Destination, Outlet, View};
use query::Question;
pub use reach_page::reach_file;

/// The path below the viewer's session that reads the hub again: a link on each page leads to it.
pub const READ_AGAIN_PATH: &str = "read-again";
/// The parameter of that link which names the page to return to.
pub const RETURN_PARAMETER: &str = "then";

/// The longest path that a page repeats.
const MAX_SHOWN_PATH: usize = 100;

/// Beyond it the sections of the file's targets say how many accesses there are, without a row each.
const MAX_SECTION_BYTES: usize = 1_750_000;

/// A page that the viewer answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The whole HTML document.
    pub html: String,
    /// Whether what was asked for exists: the status is 404 if not.
    pub exists: bool,
}

/// Renders the page at `path`, below the viewer's session and without a leading `/`: `fleet`,
/// `tenants`, `expiry`, `keys`, `denials`, `target/NAME` or `tenant/NAMESPACE`. `query` is the URL's
/// query, percent-encoded.
#[must_use]
pub fn viewer_page(fleet: &Fleet, path: &str, query: &str) -> Page {
    let depth = path.matches('/').count();
    let view = View::new(fleet, Outlet::Viewer { depth });
    let content = page_content(&view, path, &Question::parse(query));
    let exists = content.is_some();
    let content = content.unwrap_or_else(|| unknown_content(&view, path));
    Page {
        html: viewer_document(&view, &content, path, query).into_string(),
        exists,
    }
}

/// Renders the one file with everything: the fleet, endings, keys, denials, and a section for each
/// target and tenant.
#[must_use]
pub fn whole_file(fleet: &Fleet) -> String {
    let view = View::new(fleet, Outlet::File);
    let question = Question::default();
    let sections = [
        ("fleet", fleet_page::fleet_content(&view, &question)),
        ("expiry", expiry_page::expiry_content(&view, &question)),
        ("keys", keys_page::keys_content(&view)),
        ("denials", denials_page::denials_content(&view)),
        ("targets", targets_content(&view)),
        ("tenants", tenant_page::tenants_content(&view, &question)),
    ];
    let title = format!("The fleet at {}", words::utc(fleet.reading.read_at));
    file_document(&view, &title, &sections).into_string()
}

/// The `Content-Security-Policy` of the viewer's pages, with the hash of the one style sheet.
#[must_use]
pub fn viewer_content_security_policy() -> String {
    style::viewer_policy()
}

/// The page at a path, if there is one.
fn page_content(view: &View<'_>, path: &str, question: &Question) -> Option<Content> {
    let fleet = view.fleet;
    if let Some(name) = path.strip_prefix("target/") {
        let target = fleet
            .targets
            .iter()
            .find(|target| target.name.as_str() == name)?;
        return Some(target_page::target_content(view, target, question));
    }
    if let Some(name) = path.strip_prefix("tenant/") {
        let tenant = fleet
            .tenants
            .iter()
            .find(|tenant| tenant.namespace.as_str() == name)?;
        return Some(tenant_page::tenant_content(view, tenant, question));
    }
    match path {
        "fleet" => Some(fleet_page::fleet_content(view, question)),
        "tenants" => Some(tenant_page::tenants_content(view, question)),
        "expiry" => Some(expiry_page::expiry_content(view, question)),
        "keys" => Some(keys_page::keys_content(view)),
        "denials" => Some(denials_page::denials_content(view)),
        _ => None,
    }
}

fn unknown_content(view: &View<'_>, path: &str) -> Content {
    let path: String = path.chars().take(MAX_SHOWN_PATH).collect();
    let shown = ForeignText::new(&path);
    Content {
        title: "Not found".to_owned(),
        sentence: match path.split_once('/') {
            Some(("target", name)) => format!("No target is named {}", ForeignText::new(name)),
            Some(("tenant", name)) => {
                format!("No namespace {} has an access", ForeignText::new(name))
            }
            _ => format!("There is no page {shown}"),
        },
        body: empty::unknown_page(
            &view.outlet.link(Destination::Fleet),
            &view.outlet.link(Destination::Tenants),
        ),
    }
}

/// The section of the file with each target.
fn targets_content(view: &View<'_>) -> Content {
    let mut bytes = 0;
    let sections = view.fleet.targets.iter().map(|target| {
        let section = target_page::target_section(view, target, bytes < MAX_SECTION_BYTES);
        bytes += section.0.len();
        section
    });
    let sections: Vec<Markup> = sections.collect();
    Content {
        title: "Targets".to_owned(),
        sentence: "Each target, worst first".to_owned(),
        body: html! { @for section in &sections { (section) } },
    }
}
