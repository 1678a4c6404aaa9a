//! Where the parts of onboarding go: to the screen, or apart into the files of a folder.

use serde_json::Value;

use super::write::{print, show};
use crate::command_error::CommandError;
use crate::onboarding::apply::PlannedObject;
use crate::role_manifest::documents;
use crate::trust::{OutputDirArgs, OutputFile, RBAC_FILE, TargetPart, write_files};
use crate::ui;

/// The file with the objects of the hub.
const HUB_FILE: &str = "hub.yaml";
/// The file with what a configuration file lacks.
const CONFIGURATION_FILE: &str = "configuration.yaml";

impl OutputDirArgs {
    /// Shows the objects of the hub. `in_place`: the TargetCluster is on the hub and stays as it is,
    /// so a file of an earlier run is left alone, which has it as it was created.
    ///
    /// # Errors
    /// Standard output was closed, or the file cannot be written.
    pub(super) fn hub<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a PlannedObject>,
        in_place: bool,
    ) -> Result<(), CommandError> {
        let objects = objects.into_iter();
        let Some(folder) = &self.output_dir else {
            return show("on the hub", objects.map(|planned| &planned.object));
        };
        let path = folder.join(HUB_FILE);
        if in_place && !self.force && path.exists() {
            return print(&format!(
                "{}: left as it is, because the hub has the TargetCluster",
                path.display()
            ));
        }
        let objects = objects.map(|planned| {
            let mut object = planned.object.clone();
            // A file is applied at any time, and not to exactly this version.
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
            }
            object
        });
        self.write(&[OutputFile {
            name: HUB_FILE,
            text: documents(objects) + "\n",
        }])
    }

    /// Shows what the configuration file lacks.
    ///
    /// # Errors
    /// Standard output was closed, or the file cannot be written.
    pub(super) fn configuration(&self, file: &str, objects: &[Value]) -> Result<(), CommandError> {
        if self.output_dir.is_none() {
            return show(&format!("add to {file}"), objects);
        }
        self.write(&[OutputFile {
            name: CONFIGURATION_FILE,
            text: documents(objects.iter().cloned()) + "\n",
        }])
    }

    /// Shows what the target needs: its file, which only its nodes can have, and RBAC. The file is
    /// left out unless `with_file`.
    ///
    /// # Errors
    /// Standard output was closed, or a file cannot be written.
    pub(super) fn target(
        &self,
        part: &TargetPart,
        place: &str,
        with_file: bool,
    ) -> Result<(), CommandError> {
        for note in &part.notes {
            ui::note(&format!("note: {note}"));
        }
        if self.output_dir.is_some() {
            let is_written = |file: &&OutputFile| with_file || file.name == RBAC_FILE;
            return self.write(part.files.iter().filter(is_written));
        }
        if with_file {
            print(&format!(
                "== on the control plane nodes of the target\n{}",
                part.text.trim_end()
            ))?;
        }
        if part.rbac.is_empty() {
            return Ok(());
        }
        show(&format!("at the target ({place})"), &part.rbac)
    }

    fn write<'a>(
        &self,
        files: impl IntoIterator<Item = &'a OutputFile>,
    ) -> Result<(), CommandError> {
        let Some(folder) = &self.output_dir else {
            return Ok(());
        };
        let files: Vec<&OutputFile> = files.into_iter().collect();
        print(&write_files(folder, &files, self.force)?.join("\n"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::OutputDirArgs;
    use crate::onboarding::apply::PlannedObject;

    fn into(folder: &Path) -> OutputDirArgs {
        OutputDirArgs {
            output_dir: Some(folder.to_owned()),
            force: false,
        }
    }

    fn target(address: &str) -> PlannedObject {
        PlannedObject::from(json!({
            "kind": "TargetCluster", "metadata": { "name": "prod", "resourceVersion": "7" },
            "spec": { "address": address },
        }))
    }

    #[test]
    fn a_file_of_an_earlier_run_is_neither_replaced_nor_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let output = into(folder.path());
        output.hub(&[target("https://a")], false).unwrap();
        let path = folder.path().join("hub.yaml");
        let first = std::fs::read_to_string(&path).unwrap();
        assert!(
            first.contains("https://a") && !first.contains("resourceVersion"),
            "{first}"
        );
        // The run goes on after an interruption: the hub has the object, perhaps with defaults.
        output.hub(&[target("https://a")], false).unwrap();
        output.hub(&[target("https://b")], true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
        let error = output.hub(&[target("https://b")], false).unwrap_err();
        let fix = error.fix.unwrap_or_default();
        assert!(fix.contains("--force"), "{fix}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
        let forced = OutputDirArgs {
            force: true,
            ..output
        };
        forced.hub(&[target("https://b")], true).unwrap();
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .contains("https://b")
        );
    }
}
