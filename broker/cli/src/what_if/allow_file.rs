//! The file of new ways that are expected.

use std::collections::BTreeSet;
use std::path::Path;

use keyferry_platform::regular_file;
use keyferry_reach::Subject;
use keyferry_reach::doors;
use keyferry_reach::what_if::WayChange;
use serde::Deserialize;

use crate::command_error::CommandError;

const MAX_ALLOW_BYTES: u64 = 1 << 20;
const MAX_ALLOWED_WAYS: usize = 5_000;
/// Stands for each target.
const EACH_TARGET: &str = "*";

/// The ways that are expected.
#[derive(Debug, Default)]
pub(super) struct AllowedWays {
    ways: BTreeSet<(Subject, String, u8)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedWay {
    subject: String,
    target: String,
    door: u8,
}

impl AllowedWays {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or has a mistake.
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let wrong = |problem: String| {
            CommandError::of_line(&format!("reading {}: {problem}", path.display()))
        };
        let bytes = regular_file::read_regular_file(path, MAX_ALLOW_BYTES)
            .map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let rows: Vec<AllowedWay> = serde_saphyr::from_str(text).map_err(
            |_| "it is no list of ways; fix: write - {subject: tenant-a/ci, target: prod, door: 3}",
        )?;
        if rows.len() > MAX_ALLOWED_WAYS {
            return Err(format!(
                "it has more than {MAX_ALLOWED_WAYS} ways; fix: split the change"
            ));
        }
        let mut ways = BTreeSet::new();
        for (index, row) in rows.into_iter().enumerate() {
            let number = index + 1;
            let subject: Subject = (row.subject.parse())
                .map_err(|error| format!("way {number}: its subject is wrong; fix: {error}"))?;
            if usize::from(row.door) > doors::ALL.len() {
                return Err(format!(
                    "way {number}: there is no door {}; fix: write 1 to 12, or 0 for a way by any door",
                    row.door
                ));
            }
            if row.target != EACH_TARGET && super::target_name(&row.target).is_err() {
                return Err(format!(
                    "way {number}: its target is no name; fix: name a TargetCluster, or \"*\""
                ));
            }
            ways.insert((subject, row.target, row.door));
        }
        Ok(Self { ways })
    }

    /// Whether a way is expected. A way to any target or by any door is, if the file says so.
    pub(super) fn has(&self, way: &WayChange) -> bool {
        let has = |target: &str| {
            let key = (
                way.subject.clone(),
                target.to_owned(),
                way.door.unwrap_or(0),
            );
            self.ways.contains(&key)
        };
        has(EACH_TARGET)
            || way
                .target
                .as_ref()
                .is_some_and(|target| has(target.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::AllowedWays;

    #[test]
    fn the_list_is_read_strictly() {
        for (text, is_read) in [
            ("[]", true),
            ("- {subject: tenant-a/ci, target: prod, door: 3}", true),
            ("- {subject: 'group:ops', target: '*', door: 0}", true),
            ("- {subject: tenant-a/ci, target: prod}", false),
            (
                "- {subject: tenant-a/ci, target: prod, door: 3, until: never}",
                false,
            ),
            ("- {subject: ci, target: prod, door: 3}", false),
            ("- {subject: tenant-a/ci, target: Prod_1, door: 3}", false),
            ("- {subject: tenant-a/ci, target: prod, door: 13}", false),
            ("- {subject: tenant-a/ci, target: prod, door: three}", false),
            ("subject: tenant-a/ci", false),
            ("- [", false),
            // An empty list allows nothing.
            ("", true),
        ] {
            assert_eq!(AllowedWays::parse(text).is_ok(), is_read, "{text}");
        }
    }
}
