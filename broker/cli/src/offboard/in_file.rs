//! Offboarding with objects in a configuration file: lists the accesses that end and the lines to
//! remove. The command does not write the file.

use std::path::PathBuf;

use keyferry_api::config::{
    Configuration, ObjectSource, Overrides, Policy, TargetAccess, WrittenObject,
};
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_client::object_view::TargetView;
use keyferry_core::static_verdict::StaticVerdict;
use keyferry_platform::config_file;
use serde_json::json;

use super::{RemovalArgs, UNTIL_THEN, warn_of_labels};
use crate::command_error::CommandError;
use crate::onboard::{Writing, print, show};
use crate::onboarding::allow_rules::{allowed_in, disallow, rules_of};
use crate::ui;

/// The objects of a configuration file.
pub(super) struct FileObjects {
    path: PathBuf,
    configuration: Configuration,
    written: Vec<WrittenObject>,
    writing: Writing,
}

impl FileObjects {
    /// Reads the file of `--config`. `None` if none is named, or its objects are on the hub.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(super) fn named(removal: &RemovalArgs) -> Result<Option<Self>, CommandError> {
        let Some(path) = &removal.config else {
            return Ok(None);
        };
        let (configuration, written) = config_file::read_written(path, Overrides::of_a_reader())?;
        if configuration.server.objects == ObjectSource::CustomResources {
            return Ok(None);
        }
        Ok(Some(Self {
            path: path.clone(),
            configuration,
            written,
            writing: removal.writing(),
        }))
    }

    /// Lists the accesses that end with a target, and its lines in the file.
    pub(super) fn target(&self, name: &ObjectName) -> Result<(), CommandError> {
        let target = self.find_target_object(name)?;
        let is_relying_party = TargetView::of(target.value()).spec.is_relying_party();
        let targets = self.policy().targets.values();
        let roles = targets.filter(|it| it.role.as_ref().is_some_and(|it| it.same_as == *name));
        let roles: Vec<&str> = roles.map(|it| it.name.as_str()).collect();
        if !roles.is_empty() {
            print(&format!(
                "roles at the cluster of {name}, to offboard first: {}",
                roles.join(", ")
            ))?;
        }
        let uses = self.find_uses(name, None);
        self.print_uses(&uses, name)?;
        let lines: Vec<String> = uses
            .iter()
            .filter_map(|access| self.find_access_object(access))
            .chain([target])
            .map(described)
            .collect();
        self.print_lines(&lines)?;
        let entry = match is_relying_party {
            true => {
                "left to do at the relying party: remove its trust in the hub's issuer for this \
                     audience"
            }
            false => {
                "left to do at the target: remove the entry of the hub's issuer from its \
                      AuthenticationConfiguration, and the RBAC of the hub's users"
            }
        };
        print(&format!(
            "the order: the accesses, then the entry, then the TargetCluster\n{entry}. {UNTIL_THEN}"
        ))?;
        self.refuse_removal()
    }

    /// Says what a tenant loses, and which lines name it.
    pub(super) fn tenant(
        &self,
        name: &ObjectName,
        namespace: &Namespace,
    ) -> Result<(), CommandError> {
        let target = self.find_target_object(name)?;
        let uses = self.find_uses(name, Some(namespace));
        self.print_uses(&uses, name)?;
        let mut without = target.value().clone();
        let mut narrowed = false;
        for account in allowed_in(target.value(), namespace) {
            narrowed |= disallow(&mut without, &account);
        }
        if narrowed {
            let heading = format!(
                "in {}, line {}: spec.allow of TargetCluster {name} without the tenant",
                self.path.display(),
                target.line("spec.allow")
            );
            show(&heading, [&json!({ "allow": rules_of(&without) })])?;
        }
        if let Some(warning) = warn_of_labels(&without) {
            ui::note(&format!("warning: {warning}"));
        }
        let lines: Vec<String> = uses
            .iter()
            .filter_map(|access| self.find_access_object(access))
            .map(described)
            .collect();
        self.print_lines(&lines)?;
        print(&format!(
            "left to do on the hub: kubectl delete rolebinding keyferry-minter -n {namespace}\nleft \
             to do at the target: its file without the tenant: keyferry trust {name} --config {}",
            self.path.display()
        ))?;
        self.refuse_removal()
    }

    fn policy(&self) -> &Policy {
        &self.configuration.policy
    }

    fn find_target_object(&self, name: &ObjectName) -> Result<&WrittenObject, CommandError> {
        let is_it = |object: &&WrittenObject| {
            object.kind() == "TargetCluster" && object.name() == name.as_str()
        };
        self.written.iter().find(is_it).ok_or_else(|| {
            CommandError::with_fix(
                format!("{} has no TargetCluster {name}", self.path.display()),
                "list what it has: keyferry targets --config FILE",
            )
        })
    }

    fn find_access_object(&self, access: &TargetAccess) -> Option<&WrittenObject> {
        self.written.iter().find(|object| {
            object.kind() == "TargetAccess"
                && object.name() == access.name.name.as_str()
                && object.namespace() == access.name.namespace.as_str()
        })
    }

    fn find_uses(&self, name: &ObjectName, namespace: Option<&Namespace>) -> Vec<&TargetAccess> {
        let accesses = self.policy().accesses.values();
        accesses
            .filter(|access| access.target == *name)
            .filter(|access| namespace.is_none_or(|one| access.name.namespace == *one))
            .collect()
    }

    fn print_uses(&self, uses: &[&TargetAccess], name: &ObjectName) -> Result<(), CommandError> {
        if uses.is_empty() {
            return print(&format!("no TargetAccess leads to {name}"));
        }
        let heading = ["ACCESS", "SERVICEACCOUNT", "ALLOWED"].map(str::to_owned);
        let row = |access: &&TargetAccess| {
            vec![
                access.name.to_string(),
                access.service_account.to_string(),
                StaticVerdict::of(self.policy(), access).as_str().to_owned(),
            ]
        };
        let mut rows = vec![heading.to_vec()];
        rows.extend(uses.iter().map(row));
        print(&ui::table(&rows))
    }

    fn print_lines(&self, lines: &[String]) -> Result<(), CommandError> {
        if lines.is_empty() {
            return Ok(());
        }
        print(&format!(
            "== remove from {}\n{}\nA running Keyferry reloads the file, and then issues no token \
             for what is gone",
            self.path.display(),
            lines.join("\n")
        ))
    }

    /// The command that was typed removes nothing, so it must not succeed.
    fn refuse_removal(&self) -> Result<(), CommandError> {
        if self.writing == Writing::ShownOnly {
            return Ok(());
        }
        Err(CommandError::with_fix(
            format!(
                "the objects are in {}, which this command does not write; nothing was removed",
                self.path.display()
            ),
            "remove the lines that are shown from the file, and leave out --remove and --dry-run",
        ))
    }
}

fn described(object: &WrittenObject) -> String {
    let (first, last) = object.lines();
    let place = match object.namespace() {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    format!(
        "lines {first} to {last}: {} {place}{}",
        object.kind(),
        object.name()
    )
}
