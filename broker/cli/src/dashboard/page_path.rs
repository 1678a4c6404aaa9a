//! The paths of the viewer's pages.

use keyferry_pages::RETURN_PARAMETER;
use url::form_urlencoded;

/// The page that the link leads to.
pub(super) const FIRST_PAGE: &str = "fleet";
/// The longest path of a page: a kind, and a namespace or a name of 253 characters each.
const MAX_PATH_BYTES: usize = 600;
/// The longest query that is repeated.
const MAX_QUERY_BYTES: usize = 2048;

/// Whether a path can be one of a page: names of Kubernetes and slashes need no encoding, and no
/// segment leads elsewhere.
pub(super) fn is_page_path(path: &str) -> bool {
    let is_plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'/')
    };
    path.len() <= MAX_PATH_BYTES
        && path.bytes().all(is_plain)
        && path
            .split('/')
            .all(|segment| !matches!(segment, "" | "." | ".."))
}

/// Returns the page to go back to after reading again, with its query: the one that `then` names, if
/// that can be a page, else the first page. It never leads out of the session.
pub(super) fn page_after_reading(query: &str) -> String {
    form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == RETURN_PARAMETER)
        .map(|(_, page)| page.into_owned())
        .filter(|page| is_page(page))
        .unwrap_or_else(|| FIRST_PAGE.to_owned())
}

fn is_page(page: &str) -> bool {
    match page.split_once('?') {
        None => is_page_path(page),
        Some((path, query)) => {
            let is_of_query =
                |byte: u8| byte.is_ascii_alphanumeric() || b"=&%+-._~*".contains(&byte);
            is_page_path(path) && query.len() <= MAX_QUERY_BYTES && query.bytes().all(is_of_query)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_page_path, page_after_reading};

    #[test]
    fn only_plain_names_are_paths_of_pages() {
        for path in ["fleet", "target/prod-1.eu", "tenant/tenant-a", "a/b/c"] {
            assert!(is_page_path(path), "{path}");
        }
        let long = "a".repeat(601);
        for path in [
            "",
            "/fleet",
            "fleet/",
            "a//b",
            "..",
            "../fleet",
            "target/..",
            "target/./a",
            "target/%2e%2e",
            "Fleet",
            "target/a b",
            "a\\b",
            "a:b",
            "a?b",
            "a#b",
            "é",
            &long,
        ] {
            assert!(!is_page_path(path), "{path}");
        }
    }

    #[test]
    fn reading_again_leads_back_to_a_page_of_the_session() {
        let long = format!("then=fleet%3Fq%3D{}", "a".repeat(2100));
        for (query, page) in [
            ("", "fleet"),
            ("then=target%2Fprod", "target/prod"),
            ("a=b&then=expiry", "expiry"),
            (
                "then=fleet%3Fstate%3Dbroken%26sort%3Dname",
                "fleet?state=broken&sort=name",
            ),
            ("then=fleet%3Fq%3Da%2520b", "fleet?q=a%20b"),
            ("then=https%3A%2F%2Fevil.example", "fleet"),
            ("then=%2F%2Fevil.example", "fleet"),
            ("then=%2Fetc", "fleet"),
            ("then=..%2F..%2Fevil", "fleet"),
            ("then=%5C%5Cevil.example", "fleet"),
            ("then=fleet%0d%0aset-cookie%3A%20a", "fleet"),
            ("then=fleet%3Fq%3D%0d%0a", "fleet"),
            ("then=fleet%3Fq%3D%22%3E%3Cscript%3E", "fleet"),
            ("then=javascript%3Aalert(1)", "fleet"),
            ("then=", "fleet"),
            (&long, "fleet"),
        ] {
            assert_eq!(page_after_reading(query), page, "{query}");
        }
    }
}
