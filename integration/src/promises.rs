//! `integration/promises.md`: each promise and the tests that keep it, and the promise that needs
//! each part.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The heading of the table of parts.
const PARTS: &str = "Parts";
/// The files that make a folder a part or a client.
const MANIFESTS: [&str; 4] = ["go.mod", "package.json", "requirements.txt", "pom.xml"];

/// A suite as it is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredSuite {
    /// Its name.
    pub name: String,
    /// Its tests, without its name.
    pub tests: BTreeSet<String>,
    /// The folders of the parts that it needs.
    pub folders: BTreeSet<String>,
}

/// The promises of the page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// The tests of each suite that some promise names.
    tests: BTreeMap<String, BTreeSet<String>>,
    /// The tests that each part's promise names, as `suite::test`. Empty if no test needs it.
    parts: BTreeMap<String, Vec<String>>,
}

impl Promises {
    /// Reads the page. A heading names one suite or several, each in backticks. The last cell of a
    /// row names its tests in the same way. What it says of `skipped` suites is left out.
    pub fn read(page: &str, skipped: &[String]) -> Self {
        let mut promises = Self::default();
        let mut suites: Vec<String> = Vec::new();
        let mut of_parts = false;
        for line in page.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                suites = backticked(heading);
                suites.retain(|suite| !skipped.contains(suite));
                of_parts = heading == PARTS;
                for suite in &suites {
                    promises.tests.entry(suite.clone()).or_default();
                }
            } else if let Some((first, last)) = row(line) {
                let mut named = backticked(last);
                if of_parts {
                    named.retain(|name| {
                        let suite = name.split_once("::").map(|(suite, _)| suite);
                        suite.is_some_and(|suite| !skipped.iter().any(|it| it == suite))
                    });
                    promises.add_part(first, named);
                } else {
                    for suite in &suites {
                        let tests = promises.tests.entry(suite.clone()).or_default();
                        tests.extend(named.iter().cloned());
                    }
                }
            }
        }
        promises
    }

    fn add_part(&mut self, cell: &str, named: Vec<String>) {
        for folder in backticked(cell) {
            self.parts.insert(folder, named.clone());
        }
    }

    /// What the page and the registered suites do not say alike.
    pub fn faults_of_tests(&self, suites: &[RegisteredSuite]) -> Vec<String> {
        let mut faults = Vec::new();
        for suite in suites {
            let name = &suite.name;
            let Some(named) = self.tests.get(name) else {
                faults.push(format!("the suite {name} has no heading"));
                continue;
            };
            let missing = suite.tests.difference(named);
            faults.extend(missing.map(|test| format!("{name}::{test} is in no row")));
            let gone = named.difference(&suite.tests);
            faults.extend(gone.map(|test| format!("a row names {name}::{test}, which is no test")));
        }
        let registered = |name: &String| suites.iter().any(|suite| suite.name == *name);
        let unknown = self.tests.keys().filter(|name| !registered(name));
        faults.extend(unknown.map(|name| format!("a heading names {name}, which is no suite")));
        faults
    }

    /// What the table of parts lacks of these folders, and which of its promises need no such part.
    pub fn faults_of_parts(
        &self,
        folders: &BTreeSet<String>,
        suites: &[RegisteredSuite],
    ) -> Vec<String> {
        let rows: BTreeSet<String> = self.parts.keys().cloned().collect();
        let missing = folders.difference(&rows);
        let mut faults: Vec<String> = missing
            .map(|folder| format!("the part {folder} is in no row"))
            .collect();
        let gone = rows.difference(folders);
        faults.extend(gone.map(|folder| format!("a row names the part {folder}, which is gone")));
        for (folder, tests) in &self.parts {
            let needs = |suite: &RegisteredSuite| suite.folders.contains(folder);
            if tests.is_empty() && suites.iter().any(needs) {
                faults.push(format!("the row of {folder} names no test"));
            }
            for test in tests {
                let holder = test.split_once("::").and_then(|(suite, test)| {
                    let mut named = suites.iter().filter(|it| it.name == suite);
                    named.find(|it| it.tests.contains(test))
                });
                match holder {
                    None => faults.push(format!("the row of {folder} names {test}, no test")),
                    Some(suite) if !needs(suite) => faults.push(format!(
                        "the row of {folder} names {test}, whose suite does not need it"
                    )),
                    Some(_) => {}
                }
            }
        }
        faults
    }
}

/// The folders of parts and clients below `integration`, such as `parts/etcd`.
///
/// # Errors
/// A folder cannot be read.
pub fn folders_of_parts() -> std::io::Result<BTreeSet<String>> {
    let integration = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = BTreeSet::new();
    for shelf in ["parts", "clients"] {
        collect_folders(&integration.join(shelf), shelf, &mut folders)?;
    }
    Ok(folders)
}

fn collect_folders(folder: &Path, name: &str, found: &mut BTreeSet<String>) -> std::io::Result<()> {
    if MANIFESTS.iter().any(|file| folder.join(file).is_file()) {
        found.insert(name.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let inner = format!("{name}/{}", entry.file_name().to_string_lossy());
            collect_folders(&entry.path(), &inner, found)?;
        }
    }
    Ok(())
}

/// The first and the last cell of a row of a table.
fn row(line: &str) -> Option<(&str, &str)> {
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
    cells.split_once(" | ")
}

/// The texts between backticks.
fn backticked(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
## `flux`, `d2`

| promise | tests |
|---|---|
| a `token` is renewed | `one`, `two` |

## Parts

| folder | promise that needs it |
|---|---|
| `parts/etcd` | state: `flux::one` |
| `parts/spire` | none in a run |
";

    fn suite(name: &str, tests: &[&str], folders: &[&str]) -> RegisteredSuite {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        RegisteredSuite {
            name: name.to_owned(),
            tests: set(tests),
            folders: set(folders),
        }
    }

    fn folders(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_page_that_names_all_has_no_fault() {
        let promises = Promises::read(PAGE, &[]);
        let suites = [
            suite("flux", &["one", "two"], &["parts/etcd"]),
            suite("d2", &["one", "two"], &[]),
        ];
        assert_eq!(promises.faults_of_tests(&suites), [""; 0]);
        let parts = folders(&["parts/etcd", "parts/spire"]);
        assert_eq!(promises.faults_of_parts(&parts, &suites), [""; 0]);
    }

    #[test]
    fn a_test_that_is_gone_or_in_no_row_is_a_fault() {
        let suites = [
            suite("flux", &["one", "three"], &[]),
            suite("node", &["one"], &[]),
        ];
        assert_eq!(
            Promises::read(PAGE, &[]).faults_of_tests(&suites),
            [
                "flux::three is in no row",
                "a row names flux::two, which is no test",
                "the suite node has no heading",
                "a heading names d2, which is no suite",
            ]
        );
    }

    #[test]
    fn a_part_without_a_promise_is_a_fault() {
        let suites = [suite("flux", &["two"], &["parts/spire"])];
        let parts = folders(&["parts/helm", "parts/spire"]);
        assert_eq!(
            Promises::read(PAGE, &[]).faults_of_parts(&parts, &suites),
            [
                "the part parts/helm is in no row",
                "a row names the part parts/etcd, which is gone",
                "the row of parts/etcd names flux::one, no test",
                "the row of parts/spire names no test",
            ]
        );
    }

    #[test]
    fn a_skipped_suite_is_left_out() {
        let promises = Promises::read(PAGE, &["flux".to_owned()]);
        let suites = [suite("d2", &["one", "two"], &[])];
        assert_eq!(promises.faults_of_tests(&suites), [""; 0]);
        let parts = folders(&["parts/etcd", "parts/spire"]);
        assert_eq!(promises.faults_of_parts(&parts, &suites), [""; 0]);
    }

    #[test]
    fn a_promise_needs_its_part() {
        let suites = [suite("flux", &["one", "two"], &[])];
        let parts = folders(&["parts/etcd", "parts/spire"]);
        assert_eq!(
            Promises::read(PAGE, &[]).faults_of_parts(&parts, &suites),
            ["the row of parts/etcd names flux::one, whose suite does not need it"]
        );
    }
}
