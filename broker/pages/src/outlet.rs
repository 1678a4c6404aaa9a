//! Where a page is shown, and how its links are written there.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use keyferry_api::name::{Namespace, ObjectName};
use keyferry_fleet::facts::{AccessFacts, Fleet};
use keyferry_fleet::gap::Gap;
use maud::{Markup, html};

/// The two ways in which the same facts are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlet {
    /// A page of the viewer. The reader's secret is in the path, so every link is relative; `depth`
    /// is the number of folders between the session and the page.
    Viewer {
        /// How often `../` leads to the session.
        depth: usize,
    },
    /// The one file, where links lead to its sections.
    File,
}

/// What a link leads to. Only checked names are part of a link, never text of another party.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination<'a> {
    Fleet,
    Tenants,
    Expiry,
    Keys,
    Denials,
    Target(&'a ObjectName),
    Tenant(&'a Namespace),
}

impl Outlet {
    /// The relative URL of a destination.
    pub(crate) fn link(self, destination: Destination<'_>) -> String {
        let (page, name) = match destination {
            Destination::Fleet => ("fleet", None),
            Destination::Tenants => ("tenants", None),
            Destination::Expiry => ("expiry", None),
            Destination::Keys => ("keys", None),
            Destination::Denials => ("denials", None),
            Destination::Target(name) => ("target", Some(name.as_str())),
            Destination::Tenant(name) => ("tenant", Some(name.as_str())),
        };
        match (self, name) {
            (Self::File, None) => format!("#{page}"),
            (Self::File, Some(name)) => format!("#{page}-{name}"),
            (Self::Viewer { depth }, None) => format!("{}{page}", "../".repeat(depth)),
            (Self::Viewer { depth }, Some(name)) => {
                format!("{}{page}/{name}", "../".repeat(depth))
            }
        }
    }
}

/// The facts, and what the functions that render them look up again and again.
pub(crate) struct View<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) outlet: Outlet,
    /// The moment of all judgements.
    pub(crate) now: Timestamp,
    targets: BTreeSet<&'a str>,
    tenants: BTreeSet<&'a str>,
    by_target: BTreeMap<&'a str, Vec<&'a AccessFacts>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(fleet: &'a Fleet, outlet: Outlet) -> Self {
        let mut by_target: BTreeMap<&str, Vec<&AccessFacts>> = BTreeMap::new();
        for access in &fleet.accesses {
            let accesses = by_target.entry(access.target.as_str()).or_default();
            accesses.push(access);
        }
        for accesses in by_target.values_mut() {
            accesses.sort_by_key(|access| access.health);
        }
        Self {
            fleet,
            outlet,
            now: fleet.reading.judged_at,
            targets: fleet
                .targets
                .iter()
                .map(|target| target.name.as_str())
                .collect(),
            tenants: fleet
                .tenants
                .iter()
                .map(|tenant| tenant.namespace.as_str())
                .collect(),
            by_target,
        }
    }

    /// The accesses that name a target, worst first.
    pub(crate) fn accesses_of(&self, target: &ObjectName) -> &[&'a AccessFacts] {
        self.by_target
            .get(target.as_str())
            .map_or(&[], Vec::as_slice)
    }

    /// The target's name, as a link if it has a page.
    pub(crate) fn target_name(&self, name: &ObjectName) -> Markup {
        let link = self.outlet.link(Destination::Target(name));
        linked_name(
            name.as_str(),
            self.targets.contains(name.as_str()).then_some(link),
        )
    }

    /// The namespace's name, as a link if it has a page.
    pub(crate) fn tenant_name(&self, name: &Namespace) -> Markup {
        let link = self.outlet.link(Destination::Tenant(name));
        linked_name(
            name.as_str(),
            self.tenants.contains(name.as_str()).then_some(link),
        )
    }

    /// A heading below the page's own. In the file every section is one level deeper.
    pub(crate) fn heading(&self, text: &str) -> Markup {
        match self.outlet {
            Outlet::Viewer { .. } => html! { h2 { (text) } },
            Outlet::File => html! { h3 { (text) } },
        }
    }

    /// The gap that hides a resource of the hub, such as `targetclusters`.
    pub(crate) fn gap_of(&self, resource: &str) -> Option<&'a Gap> {
        self.fleet.gaps.iter().find(|gap| {
            let plural = gap.resource.split('.').next().unwrap_or_default();
            gap.target.is_none() && plural == resource
        })
    }

    /// The text for a fact that is not there.
    pub(crate) fn missing(&self) -> &'static str {
        if self.fleet.reading.redacted {
            "left out"
        } else {
            "not known"
        }
    }
}

fn linked_name(name: &str, link: Option<String>) -> Markup {
    match link {
        Some(link) => html! { a href=(link) { (name) } },
        None => html! { (name) },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use keyferry_api::name::{Namespace, ObjectName};

    use super::{Destination, Outlet};

    #[test]
    fn links_are_relative_and_anchors_in_the_file() {
        let target = ObjectName::new("prod.eu").unwrap();
        let tenant = Namespace::new("tenant-a").unwrap();
        for (destination, outlet, link) in [
            (Destination::Fleet, Outlet::Viewer { depth: 0 }, "fleet"),
            (Destination::Fleet, Outlet::Viewer { depth: 1 }, "../fleet"),
            (
                Destination::Target(&target),
                Outlet::Viewer { depth: 0 },
                "target/prod.eu",
            ),
            (
                Destination::Tenant(&tenant),
                Outlet::Viewer { depth: 1 },
                "../tenant/tenant-a",
            ),
            (Destination::Keys, Outlet::File, "#keys"),
            (
                Destination::Target(&target),
                Outlet::File,
                "#target-prod.eu",
            ),
        ] {
            assert_eq!(outlet.link(destination), link);
        }
    }
}
