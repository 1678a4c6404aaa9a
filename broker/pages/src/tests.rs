//! Whole pages: their text, their states, their size, and what foreign text can do to them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod foreign;
mod layout;
mod states;

use std::collections::BTreeSet;

use crate::testing::{large_fleet, sample_fleet};
use crate::{viewer_page, whole_file};
use layout::{attribute_values, laid_out, main_part};

/// Every page of the sample, and one that does not exist.
const PATHS: [&str; 8] = [
    "fleet",
    "tenants",
    "expiry",
    "keys",
    "denials",
    "target/prod-us",
    "tenant/tenant-a",
    "nowhere",
];

#[test]
fn a_whole_page() {
    let page = viewer_page(&sample_fleet(), "fleet", "");
    assert!(page.exists);
    insta::assert_snapshot!("fleet", laid_out(&page.html));
}

#[test]
fn the_main_part_of_the_other_pages() {
    for path in PATHS.iter().filter(|path| **path != "fleet") {
        let page = viewer_page(&sample_fleet(), path, "");
        assert_eq!(page.exists, *path != "nowhere", "{path}");
        insta::assert_snapshot!(path.replace('/', "-"), main_part(&page.html));
    }
}

#[test]
fn the_whole_file() {
    insta::assert_snapshot!("file", main_part(&whole_file(&sample_fleet())));
}

#[test]
fn links_stay_below_the_session_and_anchors_exist() {
    for path in PATHS {
        let page = viewer_page(&sample_fleet(), path, "").html;
        let up = "../".repeat(path.matches('/').count());
        let anchors: BTreeSet<&str> = attribute_values(&page, "id").into_iter().collect();
        for link in attribute_values(&page, "href") {
            match link.strip_prefix('#') {
                Some(anchor) => assert!(anchors.contains(anchor), "{path}: {link}"),
                None => assert!(
                    link.starts_with(&up) && !link.contains(':') && !link.starts_with('/'),
                    "{path}: {link}"
                ),
            }
        }
    }
    let file = whole_file(&large_fleet(30, 20, 200));
    let anchors = attribute_values(&file, "id");
    let distinct: BTreeSet<&str> = anchors.iter().copied().collect();
    assert_eq!(
        anchors.len(),
        distinct.len(),
        "an id stands for one element"
    );
    for link in attribute_values(&file, "href") {
        let anchor = link.strip_prefix('#').expect("the file leads nowhere else");
        assert!(distinct.contains(anchor), "{link}");
    }
}

#[test]
fn nothing_is_fetched_run_or_styled_in_place() {
    let mut pages: Vec<String> = PATHS
        .iter()
        .map(|path| viewer_page(&sample_fleet(), path, "").html)
        .collect();
    pages.push(whole_file(&sample_fleet()));
    for page in pages {
        let page = page.to_lowercase();
        for part in [
            "<script",
            "<link",
            "<img",
            "<iframe",
            "<object",
            "<details",
            " style=",
            " src=",
            " onclick=",
            "http-equiv=\"refresh\"",
            "href=\"http",
            "href=\"javascript",
            "url(",
        ] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(page.contains("<meta name=\"referrer\" content=\"no-referrer\">"));
    }
}

#[test]
fn pages_and_file_stay_small() {
    let fleet = large_fleet(300, 480, 10_000);
    for (path, query) in [
        ("fleet", ""),
        ("fleet", "sort=name&from=101"),
        ("tenants", ""),
        ("expiry", ""),
        ("expiry", "from=9901"),
        ("keys", ""),
        ("denials", ""),
        ("target/prod-007", ""),
        ("tenant/tenant-100", ""),
    ] {
        let page = viewer_page(&fleet, path, query);
        assert!(page.exists, "{path}");
        assert!(
            page.html.len() <= 100 << 10,
            "{path}?{query}: {} bytes",
            page.html.len()
        );
    }
    let file = whole_file(&fleet);
    assert!(file.len() <= 2 << 20, "{} bytes", file.len());
    for access in ["tenant-000/app-00000", "tenant-479/app-09999"] {
        assert!(file.contains(access), "{access} is in the file");
    }
}

#[test]
fn a_file_that_would_be_larger_says_what_it_leaves_out() {
    let file = whole_file(&large_fleet(300, 480, 30_000));
    assert!(file.len() <= 5 << 19, "{} bytes", file.len());
    assert!(file.contains("100 accesses. All of them: <code>keyferry fleet -o json</code>"));
}
