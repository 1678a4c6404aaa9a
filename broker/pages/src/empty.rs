//! What a page shows in place of its facts: nothing yet, not readable, nothing found.

use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::gap::Gap;
use maud::{Markup, html};

use crate::query::Question;
use crate::words::health_word;

/// The two documents that make a first target and a first access.
const FIRST_DOCUMENTS: &str = "\
apiVersion: keyferry.dev/v1alpha1
kind: TargetCluster
metadata: { name: prod }
spec:
  address: https://prod.example.com:6443
  certSecretRef: { name: prod-ca }
  audience: https://prod.example.com
  allow:
    - namespaces: [tenant-a]
      serviceAccounts: [reconciler]
      deliveries: [HTTP, Exec, FluxConfigMap, KubeConfigSecret]
---
apiVersion: keyferry.dev/v1alpha1
kind: TargetAccess
metadata: { name: prod, namespace: tenant-a }
spec:
  targetClusterRef: { name: prod }
  serviceAccountName: reconciler
  deliveries:
    - { name: flux, type: KubeConfigSecret }
";

/// There is neither a target nor an access.
pub(crate) fn nothing_yet() -> Markup {
    html! {
        div.empty {
            p {
                "Two documents are enough to begin with: a TargetCluster that says where the cluster \
                 is and who may reach it, and a TargetAccess that says which ServiceAccount does."
            }
            pre { code { (FIRST_DOCUMENTS) } }
            p {
                "Write your own names into them, " code { "kubectl apply" } " them at the hub, and read \
                 again. " code { "keyferry onboard" } " does the target's side."
            }
        }
    }
}

/// The list that a page is about was not readable.
pub(crate) fn unreadable(gap: &Gap) -> Markup {
    html! {
        div.empty {
            p {
                b { (ForeignText::new(&gap.resource)) " could not be read. " } (gap.message)
            }
            p { "Not known here: " (ForeignText::new(&gap.hides)) "." }
            p { b { "Fix: " } (ForeignText::new(&gap.fix)) }
        }
    }
}

/// No row is what the question asks for.
pub(crate) fn nothing_matches(page: &str, question: &Question, singular: &str) -> Markup {
    html! {
        div.empty {
            p {
                "No " (singular)
                @if let Some(state) = question.state { " is in the state “" (health_word(state)) "”" }
                @if question.state.is_some() && !question.search.is_empty() { " and" }
                @if !question.search.is_empty() { " contains “" (question.search) "”" }
                "."
            }
            p.links {
                @if !question.search.is_empty() {
                    a href=(question.without_search().link(page)) { "without the search" } " "
                }
                @if question.state.is_some() {
                    a href=(question.with_state(None).link(page)) { "in any state" } " "
                }
                a href=(page) { "show all" }
            }
        }
    }
}

/// The page or the name in the URL does not exist.
pub(crate) fn unknown_page(fleet_link: &str, tenants_link: &str) -> Markup {
    html! {
        div.empty {
            p { "It may have been removed since, or it is not in what was readable." }
            p.links {
                a href=(fleet_link) { "all targets" } " " a href=(tenants_link) { "all tenants" }
            }
        }
    }
}
