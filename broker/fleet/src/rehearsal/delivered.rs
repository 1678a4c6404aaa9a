//! The tokens in delivered objects, as statuses name them.

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;

use super::CallerClass;
use super::draft::{Draft, Refused};
use super::scene::Scene;
use super::timing::{CLOCK_TOLERANCE, DELIVERY_RECOVERY, UNTIL_REFUSED};
use super::window::{Window, after, before, printed};
use crate::facts::{AccessFacts, DeliveryFacts};

/// A delivery of these types always holds a token.
const TOKEN_TYPES: [&str; 2] = ["KubeConfigSecret", "ClusterAPISecret"];
/// This one holds no token, but a certificate of the hub itself.
const CERTIFICATE_TYPE: &str = "ClientCertificateSecret";

/// A token in a delivered object.
pub(super) struct DeliveredToken<'a> {
    pub(super) access: &'a AccessFacts,
    pub(super) delivery: &'a DeliveryFacts,
    pub(super) expires_at: Timestamp,
}

impl<'a> DeliveredToken<'a> {
    /// Whether it is renewed before the event, so that its end is not known.
    fn is_due_before(&self, scene: &Scene<'_>) -> bool {
        self.delivery
            .renew_at
            .map_or(scene.at > scene.fleet.reading.judged_at, |renew_at| {
                renew_at <= scene.at
            })
    }

    /// What names it.
    pub(super) fn label(&self) -> String {
        match &self.delivery.object {
            Some(object) => format!(
                "{} {object} of {}",
                self.delivery.delivery_type, self.access.name
            ),
            None => format!("{} of {}", self.delivery.delivery_type, self.access.name),
        }
    }

    /// Those who read it.
    pub(super) fn readers(&self, reason: &'static str, why: String) -> Refused {
        Refused {
            caller: CallerClass::ObjectReader,
            access: Some(self.access.name.clone()),
            target: Some(self.access.target.clone()),
            reason,
            why,
        }
    }
}

/// The tokens that live at the begin, the earliest end first.
pub(super) fn live_tokens<'a>(scene: &Scene<'a>) -> Vec<DeliveredToken<'a>> {
    let accesses = scene.fleet.accesses.iter();
    let mut tokens: Vec<DeliveredToken<'a>> = accesses
        .flat_map(|access| {
            access
                .deliveries
                .iter()
                .map(move |delivery| (access, delivery))
        })
        .filter(|(_, delivery)| delivery.delivery_type != *CERTIFICATE_TYPE)
        .filter_map(|(access, delivery)| {
            Some(DeliveredToken {
                access,
                delivery,
                expires_at: delivery.expires_at?,
            })
        })
        .filter(|token| token.expires_at > scene.at)
        .collect();
    tokens.sort_by_key(|token| token.expires_at);
    tokens
}

/// The tokens of one key that live at the begin.
pub(super) fn live_tokens_of<'a>(scene: &Scene<'a>, kid: &ForeignText) -> Vec<DeliveredToken<'a>> {
    let mut tokens = live_tokens(scene);
    tokens.retain(|token| token.delivery.key_id.as_ref() == Some(kid));
    tokens
}

/// Leaves open each delivered token about which a status says too little.
pub(super) fn check_statuses(scene: &Scene<'_>, draft: &mut Draft, key_matters: bool) {
    for access in &scene.fleet.accesses {
        for delivery in &access.deliveries {
            let has_token = TOKEN_TYPES
                .iter()
                .any(|name| delivery.delivery_type == **name)
                && delivery
                    .reason
                    .as_ref()
                    .is_some_and(|reason| *reason == *"Delivered");
            let lacks = match (delivery.expires_at, &delivery.key_id) {
                (None, _) => "expiresAt",
                (Some(_), None) if key_matters => "keyID",
                _ => continue,
            };
            if has_token {
                draft.leave_open(
                    format!("the token in {} of {}", delivery.delivery_type, access.name),
                    format!("its status has no {lacks}"),
                    format!(
                        "kubectl get targetaccess {} -n {} -o yaml",
                        access.name.name, access.name.namespace
                    ),
                );
            }
        }
    }
}

/// Adds the refusal of each token that ends while nothing renews it, until `end` and the recovery
/// after it. Returns how many tokens end meanwhile, and the first end.
pub(super) fn add_unrenewed_ends(
    scene: &Scene<'_>,
    draft: &mut Draft,
    end: Option<Timestamp>,
) -> (usize, Option<Timestamp>) {
    let rewritten_by = end.map(|end| after(end, DELIVERY_RECOVERY));
    let (mut count, mut first) = (0, None);
    for token in live_tokens(scene) {
        let expires_at = token.expires_at;
        let why = format!(
            "the token in {} ends at {} and is not renewed",
            token.label(),
            printed(expires_at)
        );
        let is_due = token.is_due_before(scene);
        let certain = Window::between(after(expires_at, UNTIL_REFUSED), end).filter(|_| !is_due);
        let possible = Window::between(before(expires_at, CLOCK_TOLERANCE), rewritten_by);
        if possible.is_none() {
            continue;
        }
        if is_due {
            draft.leave_open(
                format!("when the token in {} ends", token.label()),
                match token.delivery.renew_at {
                    Some(renew_at) => format!(
                        "it is due for renewal at {}, before the event, and its status does not say \
                         when the next one ends",
                        printed(renew_at)
                    ),
                    None => "its status has no renewAt, so it may be renewed before the event".to_owned(),
                },
                "give an --at before the renewal, or run it again then",
            );
        } else if end.is_none_or(|end| expires_at <= end) {
            count += 1;
            first = first.or(Some(expires_at));
        }
        draft.refuse(token.readers("TokenExpired", why), certain, possible);
    }
    (count, first)
}
