//! Facts for a reader outside: without addresses, audiences, issuers and users, and with numbers
//! instead of the names of namespaces and ServiceAccounts.

use std::collections::BTreeMap;

use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, Namespace, ObjectName};

use crate::facts::{
    AccessFacts, AllowFacts, Answer, Denial, Ending, EndingKind, Finding, Fleet, Source,
    TargetFacts,
};
use crate::judge::short_cause;

/// Leaves out what a reader outside must not learn. The tenant of a tenant's reading keeps its name.
/// Messages are left out, because they may repeat anything.
pub fn redact(fleet: Fleet) -> Fleet {
    let mut names = Pseudonyms::of(&fleet);
    let mut fleet = fleet;
    fleet.reading.redacted = true;
    fleet.reading.user = None;
    fleet.reading.source = match fleet.reading.source {
        Source::Hub { .. } => Source::Hub {
            server: ForeignText::new("redacted"),
        },
        Source::Folder { .. } => Source::Folder {
            path: ForeignText::new("redacted"),
        },
        own @ (Source::Demo | Source::Generated { .. }) => own,
    };
    if let Some(failed) = &mut fleet.reading.failed {
        failed.message = ForeignText::default();
    }
    for gap in &mut fleet.gaps {
        gap.message = ForeignText::default();
        // The fix may repeat the namespace.
        if let Some(namespace) = &mut gap.namespace {
            gap.fix = gap.fix.replace(namespace.as_str(), "NAMESPACE");
            *namespace = names.namespace(namespace);
        }
    }
    let endings = fleet.endings.iter_mut().chain(fleet.runway.iter_mut());
    endings.for_each(|ending| redact_ending(ending, &mut names));
    for target in &mut fleet.targets {
        redact_target(target, &mut names);
    }
    for access in &mut fleet.accesses {
        redact_access(access, &mut names);
    }
    for tenant in &mut fleet.tenants {
        tenant.namespace = names.namespace(&tenant.namespace);
        for account in &mut tenant.service_accounts {
            *account = names.account(account);
        }
    }
    fleet.keys.issuer = None;
    fleet.denials.source = fleet.denials.source.map(|_| "redacted".to_owned());
    for group in &mut fleet.denials.groups {
        group.namespace = names.namespace_text(&group.namespace);
    }
    for denial in &mut fleet.denials.newest {
        redact_denial(denial, &mut names);
    }
    fleet
}

fn redact_target(target: &mut TargetFacts, names: &mut Pseudonyms) {
    target.role = None;
    target.address = None;
    target.audience = None;
    target.issuer = None;
    target.next_command = None;
    target.cause = cause_of(&target.cause, target.reason.as_ref());
    for answer in [
        &mut target.reachable,
        &mut target.file_active,
        &mut target.keys_read,
    ] {
        redact_answer(answer);
    }
    redact_findings(&mut target.findings);
    for rule in &mut target.allow {
        redact_rule(rule, names);
    }
    target.trust = None;
}

fn redact_access(access: &mut AccessFacts, names: &mut Pseudonyms) {
    access.name = names.access(&access.name);
    access.service_account = names.account(&access.service_account);
    for caller in &mut access.callers {
        *caller = names.account_text(caller);
    }
    access.user = None;
    access.cause = cause_of(&access.cause, access.reason.as_ref());
    redact_answer(&mut access.accepted);
    redact_findings(&mut access.findings);
}

fn redact_rule(rule: &mut AllowFacts, names: &mut Pseudonyms) {
    let namespaces = rule.namespaces.to_string();
    let namespaces: Vec<String> = namespaces
        .split(", ")
        .map(|name| names.namespace_text(&ForeignText::new(name)).to_string())
        .collect();
    rule.namespaces = ForeignText::new(&namespaces.join(", "));
    for account in &mut rule.service_accounts {
        *account = names.account_text(account);
    }
}

fn redact_denial(denial: &mut Denial, names: &mut Pseudonyms) {
    denial.caller = None;
    denial.access = denial.access.take().and_then(|access| {
        let access = AccessName::parse(&access.to_string()).ok()?;
        Some(ForeignText::new(&names.access(&access).to_string()))
    });
}

fn redact_ending(ending: &mut Ending, names: &mut Pseudonyms) {
    let is_of_access = [EndingKind::Token, EndingKind::ClientCertificate].contains(&ending.what);
    if is_of_access && let Ok(access) = AccessName::parse(&ending.place.to_string()) {
        ending.place = ForeignText::new(&names.access(&access).to_string());
    }
}

fn redact_findings(findings: &mut [Finding]) {
    for finding in findings {
        finding.message = ForeignText::default();
    }
}

fn redact_answer(answer: &mut Answer) {
    match answer {
        Answer::Yes => {}
        Answer::No { message, .. } => *message = ForeignText::default(),
        Answer::Unknown { why } => *why = ForeignText::new("redacted"),
    }
}

/// The cause in the words of its reason alone.
fn cause_of(cause: &ForeignText, reason: Option<&ForeignText>) -> ForeignText {
    match reason {
        Some(reason) if !cause.is_empty() => ForeignText::new(&short_cause(&reason.to_string())),
        _ => ForeignText::default(),
    }
}

/// Numbers in place of names, in the order of the names.
struct Pseudonyms {
    own: Option<Namespace>,
    namespaces: BTreeMap<String, usize>,
    accounts: BTreeMap<String, usize>,
}

impl Pseudonyms {
    fn of(fleet: &Fleet) -> Self {
        let mut names = Self {
            own: fleet.reading.tenant.clone(),
            namespaces: BTreeMap::new(),
            accounts: BTreeMap::new(),
        };
        for tenant in &fleet.tenants {
            names.namespace(&tenant.namespace);
        }
        names
    }

    fn namespace(&mut self, name: &Namespace) -> Namespace {
        if self.own.as_ref() == Some(name) {
            return name.clone();
        }
        let number = number_of(&mut self.namespaces, name.as_str());
        Namespace::new(format!("namespace-{number}")).unwrap_or_else(|_| name.clone())
    }

    fn namespace_text(&mut self, text: &ForeignText) -> ForeignText {
        match Namespace::new(text.to_string()) {
            Ok(name) => ForeignText::new(self.namespace(&name).as_str()),
            Err(_) if text.is_empty() => ForeignText::default(),
            // A selector names labels.
            Err(_) => ForeignText::new("by labels"),
        }
    }

    fn account(&mut self, name: &ObjectName) -> ObjectName {
        let number = number_of(&mut self.accounts, name.as_str());
        ObjectName::new(format!("account-{number}")).unwrap_or_else(|_| name.clone())
    }

    fn account_text(&mut self, text: &ForeignText) -> ForeignText {
        let number = number_of(&mut self.accounts, &text.to_string());
        ForeignText::new(&format!("account-{number}"))
    }

    fn access(&mut self, name: &AccessName) -> AccessName {
        AccessName {
            namespace: self.namespace(&name.namespace),
            name: name.name.clone(),
        }
    }
}

fn number_of(numbers: &mut BTreeMap<String, usize>, name: &str) -> usize {
    let next = numbers.len() + 1;
    *numbers.entry(name.to_owned()).or_insert(next)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::generated;
    use crate::judge::judge;

    #[test]
    fn nothing_of_an_address_a_user_or_a_namespace_is_left() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut snapshot = generated::snapshot(60, 600, 3, now);
        snapshot.user = Some(ForeignText::new("jane@example.com"));
        let fleet = judge(&snapshot, now);
        let whole = serde_json::to_string(&fleet).unwrap();
        let left = serde_json::to_string(&redact(fleet.clone())).unwrap();
        for word in [
            "example.com",
            "tenant-",
            "reconciler",
            "jane",
            "system:serviceaccount",
        ] {
            assert!(whole.contains(word), "{word} is there before");
            assert!(!left.contains(word), "{word} is left");
        }
        let again = serde_json::to_string(&redact(fleet)).unwrap();
        assert_eq!(left, again, "the same numbers each time");
        assert!(left.contains("\"redacted\":true") && left.contains("namespace-1"));
    }
}
