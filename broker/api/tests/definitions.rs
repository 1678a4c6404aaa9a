//! The files of broker/crds are what the types print. `KEYFERRY_WRITE_COPIES=1` writes them.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;

use keyferry_api::definition;

#[test]
fn the_files_are_what_the_types_print() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds");
    for definition in definition::all() {
        let file = folder.join(format!("{}.yaml", definition.spec.names.plural));
        let printed = definition::manifest(&definition).unwrap();
        if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
            std::fs::write(&file, &printed).unwrap();
        }
        assert!(
            std::fs::read_to_string(&file).is_ok_and(|text| text == printed),
            "{} is not what the types of broker/api print; KEYFERRY_WRITE_COPIES=1 writes it",
            file.display()
        );
    }
}
