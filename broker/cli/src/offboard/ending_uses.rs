//! Shows the uses of a target that would end, and refuses to end those that others still need.

use keyferry_api::name::ObjectName;

use super::RemovalArgs;
use crate::command_error::CommandError;
use crate::onboard::Writing;
use crate::onboarding::users::{TargetUse, TargetUses};
use crate::ui;

/// Says who loses what.
pub(super) fn print_uses(uses: &TargetUses, target: &ObjectName) -> Result<(), CommandError> {
    let closed = |error| CommandError::new(format!("writing to standard output: {error}"));
    let unknown = uses.unknown(target);
    if let Some(unknown) = &unknown {
        ui::note(&format!("warning: {unknown}"));
    }
    if uses.readable.is_empty() {
        return match unknown {
            None => ui::result(&format!("no TargetAccess leads to {target}")).map_err(closed),
            Some(_) => Ok(()),
        };
    }
    let heading = [
        "ACCESS",
        "SERVICEACCOUNT",
        "DELIVERED",
        "TOKEN UNTIL",
        "USED BY",
        "STATE",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(uses.readable.iter().map(row));
    ui::result(&ui::table(&rows)).map_err(closed)
}

fn row(one: &TargetUse) -> Vec<String> {
    let or_none = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let delivered: Vec<String> = one
        .delivered
        .iter()
        .map(|(kind, name)| format!("{kind} {name}"))
        .collect();
    let flux = match &one.flux {
        Ok(objects) => or_none(objects.join(", ")),
        Err(why) => format!("unknown: {why}"),
    };
    vec![
        one.access.to_string(),
        one.service_account.clone(),
        or_none(delivered.join(", ")),
        or_none(one.exposure_until.clone().unwrap_or_default()),
        flux,
        if one.deleting { "draining" } else { "in use" }.to_owned(),
    ]
}

/// An access that is not read may have delivered a token that Flux still needs at the target.
pub(super) fn refuse_unread(
    removal: &RemovalArgs,
    uses: &TargetUses,
    target: &ObjectName,
) -> Result<(), CommandError> {
    if removal.ignore_unread_accesses || removal.writing() == Writing::ShownOnly {
        return Ok(());
    }
    uses.unknown(target).map_or(Ok(()), |unknown| {
        Err(CommandError::with_fix(
            format!("{unknown}; nothing was removed"),
            "make them smaller or delete them, or add --ignore-unread-accesses",
        ))
    })
}

/// Flux prunes at the target with what is delivered, so its objects have to go first.
pub(super) fn refuse_flux(removal: &RemovalArgs, live: &[&TargetUse]) -> Result<(), CommandError> {
    if removal.orphan_flux || removal.writing() == Writing::ShownOnly {
        return Ok(());
    }
    for one in live {
        let problem = match &one.flux {
            Ok(objects) if objects.is_empty() => continue,
            Ok(objects) => format!(
                "{} in {} apply by what {} delivers, and could not prune without it",
                objects.join(", "),
                one.access.namespace,
                one.access
            ),
            Err(why) => format!(
                "whether objects of Flux use what {} delivers is unknown: {why}",
                one.access
            ),
        };
        return Err(CommandError::with_fix(
            format!("{problem}; nothing was removed"),
            "delete the objects of Flux first and wait until they are gone, or add --orphan-flux",
        ));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;
    use keyferry_api::name::AccessName;

    use super::*;
    use crate::onboarding::users::UnknownFlux;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        removal: RemovalArgs,
    }

    fn removal(line: &[&str]) -> RemovalArgs {
        Line::try_parse_from(["offboard"].iter().chain(line))
            .unwrap()
            .removal
    }

    fn target_use(flux: Result<Vec<String>, UnknownFlux>) -> TargetUse {
        TargetUse {
            access: AccessName::parse("tenant-a/prod").unwrap(),
            service_account: "reconciler".to_owned(),
            uid: "u".to_owned(),
            deleting: false,
            delivered: vec![("FluxConfigMap".to_owned(), "prod".to_owned())],
            exposure_until: None,
            flux,
        }
    }

    #[test]
    fn flux_objects_go_first() {
        let used = target_use(Ok(vec!["Kustomization apps".to_owned()]));
        let unknown = target_use(Err(UnknownFlux::NotListed("forbidden".to_owned())));
        let free = target_use(Ok(Vec::new()));
        let refused = |flags: &[&str], one: &TargetUse| refuse_flux(&removal(flags), &[one]).err();
        let error = refused(&["--remove"], &used).unwrap();
        assert!(error.problem.contains("Kustomization apps"), "{error}");
        assert!(refused(&["--remove"], &unknown).is_some());
        assert!(refused(&["--remove"], &free).is_none());
        assert!(refused(&["--remove", "--orphan-flux"], &used).is_none());
        assert!(
            refused(&["--dry-run=server"], &used).is_some(),
            "the removal would be refused too"
        );
        assert!(refused(&[], &used).is_none(), "nothing is removed");
    }

    #[test]
    fn nothing_is_removed_while_accesses_are_unread() {
        let target = ObjectName::new("prod").unwrap();
        let uses = |unread: &[&str]| TargetUses {
            readable: Vec::new(),
            unread: unread.iter().map(|&name| name.to_owned()).collect(),
        };
        let refused = |flags: &[&str], names: &[&str]| {
            refuse_unread(&removal(flags), &uses(names), &target).err()
        };
        let error = refused(&["--remove"], &["tenant-a/apps"]).unwrap();
        assert!(error.problem.contains("is unknown") && error.problem.contains("tenant-a/apps"));
        assert!(refused(&["--dry-run=server"], &["tenant-a/apps"]).is_some());
        assert!(refused(&["--remove"], &[]).is_none());
        assert!(
            refused(&[], &["tenant-a/apps"]).is_none(),
            "nothing is removed"
        );
        let ignored = ["--remove", "--ignore-unread-accesses"];
        assert!(refused(&ignored, &["tenant-a/apps"]).is_none());
    }

    #[test]
    fn a_row_says_what_is_lost() {
        let row = row(&target_use(Err(UnknownFlux::NotListed(
            "forbidden".to_owned(),
        ))));
        assert_eq!(row[0], "tenant-a/prod");
        assert_eq!(row[2], "FluxConfigMap prod");
        assert_eq!(row[3], "-");
        assert_eq!(row[4], "unknown: forbidden");
    }
}
