//! Checks that a user name at a target is one of the hub's. It must begin with the hub's name and a
//! colon; otherwise a user of the hub could be one of the target's own.

use keyferry_api::reason::Reason;
use keyferry_kube_authn::Code;

use super::Cause;

/// Returns what is wrong with the name that a target gives to the bearer of a token with this
/// `sub`. `None` if nothing is wrong or the name is unknown.
///
/// Without the hub's name, only two faults are found: a name without any prefix, and one in the
/// target's own `system:`.
#[must_use]
pub fn name_fault(
    name: &str,
    subject: Option<&str>,
    hub_name: Option<&str>,
) -> Option<(Cause, String)> {
    if name.is_empty() {
        return None;
    }
    let wanted = hub_name.map_or_else(
        || "the hub's name and a colon".to_owned(),
        |hub| format!("{:?}", format!("{hub}:")),
    );
    let detail = format!("the username at the target is {name:?}; it must start with {wanted}");
    if subject == Some(name) || name.starts_with("system:serviceaccount:") {
        return Some((
            Code::EmptyPrefix.into(),
            format!("{detail}, but has no prefix"),
        ));
    }
    if name.starts_with("system:") {
        return Some((Code::SystemPrefix.into(), detail));
    }
    let begins = hub_name.is_none_or(|hub| {
        name.strip_prefix(hub)
            .is_some_and(|rest| rest.starts_with(':'))
    });
    (!begins).then(|| (Reason::IdentityUnexpected.into(), detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: &str = "system:serviceaccount:a:b";

    #[test]
    fn only_a_name_with_the_hubs_prefix_is_the_hubs() {
        let fault = |name: &str, hub: Option<&str>| {
            name_fault(name, Some(SUBJECT), hub).map(|(cause, _)| cause)
        };
        let name = format!("hub:{SUBJECT}");
        assert_eq!(
            (
                fault(&name, Some("hub")),
                fault(&name, None),
                fault("", Some("hub"))
            ),
            (None, None, None)
        );
        for hub in [Some("hub"), None] {
            assert_eq!(fault(SUBJECT, hub), Some(Code::EmptyPrefix.into()));
            assert_eq!(
                fault("system:serviceaccount:a:other", hub),
                Some(Code::EmptyPrefix.into())
            );
            assert_eq!(
                fault(&format!("system:hub:{SUBJECT}"), hub),
                Some(Code::SystemPrefix.into())
            );
        }
        for other in ["other:x", "hub", "hubx:y", &format!("hub{SUBJECT}")] {
            assert_eq!(
                fault(other, Some("hub")),
                Some(Reason::IdentityUnexpected.into()),
                "{other}"
            );
        }
        assert_eq!(
            name_fault("alice", Some("alice"), None).map(|(cause, _)| cause),
            Some(Code::EmptyPrefix.into())
        );
    }
}
