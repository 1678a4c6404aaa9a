//! Whole pages: their text, their states, their size, and what foreign text can do to them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::testing::sample_fleet;
use crate::{viewer_page, whole_file};

#[test]
fn write_them() {
    let folder = std::path::Path::new("/tmp/pages-look");
    std::fs::create_dir_all(folder.join("target")).unwrap();
    std::fs::create_dir_all(folder.join("tenant")).unwrap();
    for path in [
        "fleet",
        "tenants",
        "expiry",
        "keys",
        "denials",
        "target/prod-us",
        "tenant/tenant-a",
        "nowhere",
    ] {
        std::fs::write(
            folder.join(format!("{path}.html")),
            viewer_page(&sample_fleet(), path, "").html,
        )
        .unwrap();
    }
    std::fs::write(folder.join("file.html"), whole_file(&sample_fleet())).unwrap();
    let large = crate::testing::large_fleet(300, 480, 10000);
    std::fs::write(
        folder.join("large.html"),
        viewer_page(&large, "fleet", "").html,
    )
    .unwrap();
    std::fs::write(
        folder.join("large-expiry.html"),
        viewer_page(&large, "expiry", "").html,
    )
    .unwrap();
    std::fs::write(
        folder.join("large-tenants.html"),
        viewer_page(&large, "tenants", "").html,
    )
    .unwrap();
    std::fs::write(
        folder.join("large-target.html"),
        viewer_page(&large, "target/prod-007", "").html,
    )
    .unwrap();
    let file = whole_file(&large);
    std::fs::write(folder.join("large-file.html"), file).unwrap();
}
