//! The target's part of onboarding: the file for its nodes, which is shown only if it replaces
//! nothing unseen, and the RBAC, which is applied.

use keyferry_api::name::ObjectName;
use keyferry_client::object_view::ObjectHead;
use keyferry_hub::client::{HubAccess, HubClient};
use keyferry_kube_authn::config::MAX_BYTES;
use keyferry_kube_authn::prediction::hash_of;

use super::guided_args::GuidedArgs;
use super::place::KeyferryObjects;
use super::progress::Progress;
use super::proof::NODES;
use super::write::{Writing, print, write_all};
use crate::command_error::CommandError;
use crate::onboarding::apply::{Cluster, PlannedObject, title};
use crate::onboarding::change_plan::Removals;
use crate::onboarding::loaded_file::{self, FileAdvice};
use crate::onboarding::target_facts::TargetFacts;
use crate::onboarding::target_role;
use crate::trust::{Occasion, TargetPart, powers_of_shipped_role};
use crate::{local_file, ui};

/// A target whose part is shown and applied.
pub(super) struct TargetSide<'a> {
    pub(super) guided: &'a GuidedArgs,
    pub(super) name: &'a ObjectName,
    /// The target, with the user of --target-kubeconfig.
    pub(super) access: &'a HubAccess,
    pub(super) facts: &'a TargetFacts,
    /// The file that would have been shown before this run, if its objects existed.
    pub(super) before: Option<String>,
}

impl TargetSide<'_> {
    /// Shows the file and the RBAC, and applies the RBAC. Returns whether the file is withheld.
    ///
    /// # Errors
    /// The target cannot be read or written, or the user has not agreed to a removal.
    pub(super) async fn show_and_apply(
        &self,
        place: &KeyferryObjects,
        client: &HubClient,
        progress: &mut Progress,
    ) -> Result<bool, CommandError> {
        progress.begin("reading what the target needs");
        let guided = self.guided;
        let target = self.access.client().await?;
        let part = async |occasion| {
            guided
                .target_part(self.name, self.facts.minor, occasion, place, client)
                .await
        };
        let mut shown = part(Occasion::First).await?;
        let loaded = loaded_file::read(&target, self.facts.minor).await;
        let given = guided.merge.as_deref();
        let given = given
            .map(|path| local_file::read(path, "the AuthenticationConfiguration", MAX_BYTES))
            .transpose()?;
        let advice = loaded.advise(&shown.file, self.before.as_deref(), given.as_deref());
        if advice == FileAdvice::Replace || advice == FileAdvice::InPlace {
            shown = part(Occasion::Change).await?;
        }
        let withheld = self.explain(&advice, &shown, progress);
        let output = &guided.output;
        let where_it_is = self.access.describe_hub().await?;
        output.target(&shown, &where_it_is, !withheld)?;
        self.warn_of_powers(&target).await?;
        self.apply_rbac(shown, &target, &where_it_is, progress)
            .await?;
        Ok(withheld)
    }

    /// Says what becomes of the file. Returns whether it is withheld.
    fn explain(&self, advice: &FileAdvice, part: &TargetPart, progress: &mut Progress) -> bool {
        let hash = hash_of(part.file.as_bytes());
        let todo = format!(
            "{NODES} of the target, one after the other: the file that is shown; a node has loaded \
             it once its own /metrics show {hash} (Kubernetes 1.34 and newer)"
        );
        match advice {
            FileAdvice::First | FileAdvice::Replace => progress.leave(todo),
            FileAdvice::InPlace => {
                ui::note(&format!("the target has loaded exactly this file: {hash}"));
            }
            FileAdvice::Uncertain(why) => {
                ui::note(&format!(
                    "warning: whether the target has an AuthenticationConfiguration or --oidc-* \
                     flags already is undetermined: {why}. If it has, the file below would end \
                     those logins: add --merge FILE with the target's file, or see keyferry trust \
                     --from-oidc-flags"
                ));
                progress.leave(todo);
            }
            FileAdvice::Withheld(why) => {
                ui::note(&format!(
                    "the target's file is not shown: {why}. A file with the hub's entry alone \
                     would end every other login there"
                ));
                progress.leave(format!(
                    "copy the target's present AuthenticationConfiguration from a control plane \
                     node, and run this command again with --merge FILE: {}",
                    self.name
                ));
                return true;
            }
        }
        false
    }

    /// Warns of what the roles to bind give away, as the target has it.
    async fn warn_of_powers(&self, target: &HubClient) -> Result<(), CommandError> {
        for binding in self.guided.bindings()? {
            // The notes of the target's part warn of these.
            if !powers_of_shipped_role(&binding.role).is_empty() {
                continue;
            }
            match target_role::powers(target, &binding.role).await {
                Ok(powers) => {
                    if let Some(warning) = binding.warning(&powers) {
                        ui::note(&warning);
                    }
                }
                Err(why) => ui::note(&format!(
                    "warning: what ClusterRole {} may do is unknown: {why}",
                    binding.role
                )),
            }
        }
        Ok(())
    }

    async fn apply_rbac(
        &self,
        part: TargetPart,
        target: &HubClient,
        where_it_is: &str,
        progress: &mut Progress,
    ) -> Result<(), CommandError> {
        let write = self.guided.write;
        let mut wanted: Vec<PlannedObject> =
            part.rbac.iter().cloned().map(PlannedObject::from).collect();
        let is_earlier = |name: &str, role: &str| part.is_earlier_binding(name, role);
        match target_role::cluster_bindings(target, is_earlier).await {
            Ok(bindings) => {
                for earlier in bindings {
                    if write.removals() == Removals::Pruned {
                        wanted.push(PlannedObject::deletion_of(earlier));
                        continue;
                    }
                    ui::note(&format!(
                        "warning: {} of an earlier run binds its role in the whole cluster; it \
                         stays: --prune removes it",
                        title(&ObjectHead::of(&earlier))
                    ));
                }
            }
            Err(why) => ui::note(&format!(
                "whether an earlier run bound a role in the whole cluster is unknown: {why}"
            )),
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let plan = write.plan(target, Cluster::Target, wanted).await?;
        write.agree(&format!("at the target ({where_it_is})"), &plan)?;
        if write.writing() == Writing::ShownOnly {
            return print("nothing of this was written at the target");
        }
        progress.begin("applying the RBAC at the target");
        write_all(target, Cluster::Target, &plan, write.writing(), progress).await
    }
}
