//! A sample of what RBAC of the hub says, to compare it with what the hub itself answers.

use std::collections::BTreeSet;

use keyferry_kube_rbac::Attributes;

use crate::actor::Actor;
use crate::answer::Question;
use crate::doubt::Doubt;
use crate::granted::{Granted, Scope, Source};
use crate::hub_search::{HubSearch, Node};
use crate::right;
use crate::subject::Subject;
use crate::target_rights::named;
use crate::world::World;

/// How many cells are tried for each that is wanted: many are equal, or not known.
const TRIES_PER_CELL: u64 = 50;

/// A user, a request that opens a door, and what RBAC says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledCell {
    actor: Actor,
    /// What is asked.
    pub request: Attributes,
    /// Whether the roles and bindings that were read allow it.
    pub is_allowed: bool,
}

impl SampledCell {
    /// The name of the user; empty for a member of a group of whom nothing else is known.
    pub fn user(&self) -> &str {
        &self.actor.user
    }

    /// The groups of the user.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.actor.groups.iter().map(String::as_str)
    }

    /// What the hub answered instead.
    pub fn disagreement(&self) -> String {
        let (hub, rbac) = match self.is_allowed {
            true => ("refuses", "allows"),
            false => ("allows", "does not grant"),
        };
        let user = named(&self.actor);
        format!(
            "the hub {hub} what its RBAC {rbac}: {user}: {}",
            self.request
        )
    }
}

impl World {
    /// Makes every answer that rests on the rights of this cell's user undetermined.
    pub fn distrust(&mut self, cell: &SampledCell) {
        let doubt = Doubt::fact(
            cell.disagreement(),
            "read the hub again; if it stays, another authorizer than RBAC decides there",
        );
        self.hub.distrusted.insert(cell.actor.clone(), doubt);
    }
}

/// Up to `limit` cells of the users that the question is about, the same ones each time. About half
/// of them are of rules that were read.
pub fn sample_cells(world: &World, question: &Question, limit: usize) -> Vec<SampledCell> {
    let policy = world.hub.policy();
    let search = HubSearch::new(world, &policy);
    let actors = sampled_actors(&search, question.subject.as_ref());
    let namespaces: BTreeSet<&str> = search
        .accounts
        .iter()
        .map(|(_, it)| &*it.namespace)
        .collect();
    let namespaces: Vec<&str> = std::iter::once("").chain(namespaces).collect();
    let requests: Vec<&Attributes> = right::door_requests().collect();
    let (mut cells, mut texts) = (Vec::new(), BTreeSet::new());
    for number in 0..TRIES_PER_CELL.saturating_mul(limit as u64) {
        if cells.len() >= limit {
            break;
        }
        let mut choice = Choice(number);
        let Some(actor) = choice.of(&actors) else {
            break;
        };
        let granted = search.rights.granted(actor);
        let of_rule = (number % 2 == 0)
            .then(|| request_of_rule(&granted, &requests, &namespaces, &mut choice));
        let request = match of_rule {
            Some(request) => request,
            None => uniform_request(&requests, &namespaces, &mut choice),
        };
        let Some(request) = request else { continue };
        // What the actor could grant itself is not granted yet.
        let is_allowed = granted
            .that_allow(&request)
            .any(|(set, _)| !matches!(set.source, Source::OwnGrant(_)));
        let is_known = is_allowed || (granted.doubts.is_empty() && search.rights.doubts.is_empty());
        if is_known && texts.insert((actor.clone(), request.to_string())) {
            let actor = actor.clone();
            cells.push(SampledCell {
                actor,
                request,
                is_allowed,
            });
        }
    }
    cells
}

/// The subjects, or all that the only subject can become, and Keyferry's own account. RBAC decides
/// neither about nodes nor about superusers.
fn sampled_actors(search: &HubSearch<'_>, subject: Option<&Subject>) -> Vec<Actor> {
    let mut actors: BTreeSet<Actor> = match subject {
        None => search.subjects().iter().map(Actor::of_subject).collect(),
        Some(subject) => {
            let closure = search.closure(subject);
            let actors = closure.nodes().filter_map(|node| match node {
                Node::Actor(actor) => Some((**actor).clone()),
                _ => None,
            });
            actors.collect()
        }
    };
    actors.insert(Actor::user_named(&search.world.hub.account));
    actors.retain(|actor| !actor.is_node() && !actor.is_superuser());
    actors.into_iter().collect()
}

fn request_of_rule(
    granted: &Granted<'_>,
    requests: &[&Attributes],
    namespaces: &[&str],
    choice: &mut Choice,
) -> Option<Attributes> {
    let set = choice.of(&granted.sets)?;
    let rule = choice.of(set.rules)?;
    let name = rule.resource_names.first().map_or("", String::as_str);
    let namespace = match set.scope {
        Scope::Namespace(namespace) => namespace,
        _ => choice.of(namespaces)?,
    };
    let first = choice.random_below(requests.len())?;
    let (before, from) = requests.split_at_checked(first)?;
    let mut all = from.iter().chain(before);
    all.find_map(|request| {
        let request = right::request_about(request, namespace, name);
        rule.allows(&request).then_some(request)
    })
}

fn uniform_request(
    requests: &[&Attributes],
    namespaces: &[&str],
    choice: &mut Choice,
) -> Option<Attributes> {
    let request = choice.of(requests)?;
    let namespace = choice.of(namespaces)?;
    Some(right::request_about(request, namespace, ""))
}

/// Numbers that are spread, and the same each time (SplitMix64).
struct Choice(u64);

impl Choice {
    fn random_below(&mut self, length: usize) -> Option<usize> {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        let length = u64::try_from(length).ok()?;
        usize::try_from(bits.checked_rem(length)?).ok()
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.random_below(items.len())?;
        items.get(index)
    }
}
