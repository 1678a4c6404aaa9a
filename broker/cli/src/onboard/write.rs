//! Shows the objects, and writes them if the user says so.

use clap::{Args, ValueEnum};
use keyferry_hub::client::{HubClient, Persistence};
use keyferry_hub::ports::HubError;
use serde_json::Value;

use super::progress::Progress;
use crate::command_error::CommandError;
use crate::onboarding::apply::{Applier, ApplyError, Cluster, ObjectPurpose, PlannedObject, title};
use crate::onboarding::change_plan::{ChangePlan, ObjectChange, PlannedChange, Removals};
use crate::role_manifest::documents;
use crate::ui;

#[derive(Args, Clone, Copy)]
pub(crate) struct WriteArgs {
    /// Apply what is shown.
    ///
    /// Otherwise nothing is written.
    #[arg(long)]
    apply: bool,
    /// Let the apiservers check what is shown, admission policies included.
    ///
    /// Nothing is written.
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "apply")]
    dry_run: Option<DryRun>,
    /// Also remove what is in place and this command does not name.
    ///
    /// Deliveries, allow entries, subjects and rules. It is shown with - and asked about first.
    #[arg(long, hide_short_help = true)]
    prune: bool,
    /// Do not ask first.
    ///
    /// What --prune removes is removed at once.
    #[arg(long, requires = "prune", hide_short_help = true)]
    yes: bool,
}

/// Where a dry run is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// At the apiservers.
    Server,
}

/// What happens to the objects after they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Nothing.
    ShownOnly,
    /// The apiserver checks them.
    DryRun,
    /// They are applied.
    Applied,
}

impl Writing {
    /// Whether the result of a write is stored; `None` if nothing is sent.
    pub(crate) fn persistence(self) -> Option<Persistence> {
        match self {
            Self::ShownOnly => None,
            Self::DryRun => Some(Persistence::DryRun),
            Self::Applied => Some(Persistence::Stored),
        }
    }
}

impl WriteArgs {
    /// Returns what the flags say.
    pub(crate) fn writing(self) -> Writing {
        match (self.apply, self.dry_run) {
            (true, _) => Writing::Applied,
            (false, Some(DryRun::Server)) => Writing::DryRun,
            (false, None) => Writing::ShownOnly,
        }
    }

    /// Returns whether what is in place and not named is removed.
    pub(crate) fn removals(self) -> Removals {
        match self.prune {
            true => Removals::Pruned,
            false => Removals::Kept,
        }
    }

    /// Compares the objects with what exists, in order. Writes nothing.
    ///
    /// # Errors
    /// An object cannot be read although it is to be written, or cannot become what is wanted.
    pub(crate) async fn plan(
        self,
        client: &HubClient,
        cluster: Cluster,
        objects: Vec<PlannedObject>,
    ) -> Result<ChangePlan, CommandError> {
        let applier = Applier {
            client,
            cluster,
            persistence: Persistence::DryRun,
        };
        let mut plan = ChangePlan::default();
        for planned in objects {
            let change = match applier.plan(planned.clone(), self.removals()).await {
                Err(error @ ApplyError::Call { .. }) if self.writing() == Writing::ShownOnly => {
                    PlannedChange {
                        planned,
                        change: ObjectChange::Unknown(error.to_string()),
                    }
                }
                change => change.map_err(fixed)?,
            };
            plan.changes.push(change);
        }
        Ok(plan)
    }

    /// Shows the plan, and fails unless the user agrees to what it removes.
    ///
    /// # Errors
    /// Something would be removed or replaced, and the user has not agreed to that.
    pub(crate) fn agree(self, place: &str, plan: &ChangePlan) -> Result<(), CommandError> {
        print(&format!("== changes {place}\n{}", plan.describe()))?;
        let removals = plan.removals();
        if removals.is_empty() {
            return Ok(());
        }
        let objects = removals.join(", ");
        if !self.prune {
            return Err(CommandError::with_fix(
                format!(
                    "the lines with - would replace or remove what is in place ({objects}); \
                     nothing of them was written"
                ),
                "name what is in place, or choose another name; or add --prune, which replaces \
                 and removes what is shown with -",
            ));
        }
        if self.writing() != Writing::Applied || self.yes {
            return Ok(());
        }
        match ui::ask(&format!("remove what is shown with - ({objects})?")) {
            Some(true) => Ok(()),
            Some(false) => Err(CommandError::new(
                "the removal was not confirmed; nothing of it was written",
            )),
            None => Err(CommandError::with_fix(
                format!(
                    "the lines with - would be removed ({objects}), and there is no terminal to \
                     ask at; nothing of them was written"
                ),
                "read the lines, then add --yes",
            )),
        }
    }
}

/// Prints the objects below a heading. The heading is no YAML, so that nobody pipes the objects of
/// two clusters into one of them.
///
/// # Errors
/// Standard output was closed.
pub(crate) fn show<'a>(
    heading: &str,
    objects: impl IntoIterator<Item = &'a Value>,
) -> Result<(), CommandError> {
    print(&format!(
        "== {heading}\n{}",
        documents(objects.into_iter().cloned())
    ))
}

/// Prints a text for the user.
///
/// # Errors
/// Standard output was closed.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    ui::result(&ui::block(text))
        .map_err(|error| CommandError::new(format!("writing to standard output: {error}")))
}

/// Applies the objects in order, or lets the apiserver check them, and reports each.
///
/// # Errors
/// The first object that is refused; those before it are written, and in `progress`.
pub(crate) async fn write_all(
    client: &HubClient,
    cluster: Cluster,
    plan: &ChangePlan,
    writing: Writing,
    progress: &mut Progress,
) -> Result<(), CommandError> {
    let Some(persistence) = writing.persistence() else {
        return Ok(());
    };
    let suffix = match persistence {
        Persistence::DryRun => " (server dry run)",
        Persistence::Stored => "",
    };
    let applier = Applier {
        client,
        cluster,
        persistence,
    };
    for change in &plan.changes {
        let planned = &change.planned;
        let outcome = match planned.purpose {
            ObjectPurpose::Applied => applier.apply(planned).await,
            ObjectPurpose::Deleted => applier.delete(planned).await,
        };
        let (outcome, after) = outcome.map_err(fixed)?;
        let done = format!("{} {}", title(&planned.head), outcome.describe());
        ui::note(&format!("{done}{suffix}"));
        for stays in after.iter().flat_map(|after| change.not_removed(after)) {
            ui::note(&format!(
                "warning: {} still has {stays}: another field manager owns it too; remove it where \
                 that manager keeps the object",
                title(&planned.head)
            ));
        }
        if writing == Writing::Applied {
            progress.applied(done);
        }
    }
    Ok(())
}

fn fixed(error: ApplyError) -> CommandError {
    let fix = match &error {
        ApplyError::Conflict { .. } => {
            "make the change where that manager keeps the object, for example in Git, and run \
             this command again"
        }
        ApplyError::Changed { .. } | ApplyError::Contended { .. } => {
            "run this command again: it starts from the object as it is"
        }
        ApplyError::OtherRole { .. } => {
            "if Keyferry is to have the role that is shown, delete the binding with kubectl and \
             run this command again; to keep the binding, apply the other objects that are shown \
             yourself"
        }
        ApplyError::Call {
            error: HubError::Unreachable(_) | HubError::Overloaded(_),
            ..
        } => "run this command again once the cluster answers",
        ApplyError::Call { .. } | ApplyError::Kind(_) => {
            "use a kubeconfig that may write this object, or have what is shown applied by \
             somebody who may"
        }
    };
    CommandError::with_fix(error.to_string(), fix)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{WriteArgs, Writing};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: WriteArgs,
    }

    fn writing(line: &[&str]) -> Option<Writing> {
        let words = ["onboard"].iter().chain(line);
        Line::try_parse_from(words)
            .ok()
            .map(|line| line.args.writing())
    }

    #[test]
    fn nothing_is_written_unless_the_user_says_so() {
        assert_eq!(writing(&[]), Some(Writing::ShownOnly));
        assert_eq!(writing(&["--dry-run=server"]), Some(Writing::DryRun));
        assert_eq!(writing(&["--apply"]), Some(Writing::Applied));
        assert_eq!(writing(&["--apply", "--dry-run=server"]), None);
        assert_eq!(writing(&["--dry-run=client"]), None);
        assert_eq!(
            writing(&["--apply", "--yes"]),
            None,
            "there is nothing to agree to"
        );
        assert_eq!(
            writing(&["--apply", "--prune", "--yes"]),
            Some(Writing::Applied)
        );
    }
}
