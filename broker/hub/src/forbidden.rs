//! Why an apiserver answered 403, or refused a request because an admission policy is not ready.
//! Its status has a field for one of the causes; the others are only in its message, whose sentences
//! are read here and nowhere else.

use std::fmt;

use keyferry_api::foreign_text;
use serde::Deserialize;

/// The characters of the apiserver's message that are kept.
const MESSAGE_CHARACTERS: usize = 400;

/// An answer of 403.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    message: String,
    cause: ForbiddenCause,
    caller: HubCaller,
}

/// The owner of the credentials of a call to the hub. A message about a missing right names the
/// owner, because different people fix the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HubCaller {
    /// Keyferry's server.
    #[default]
    Keyferry,
    /// The person who runs a command.
    User,
}

impl fmt::Display for HubCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keyferry => "Keyferry",
            Self::User => "your own user",
        })
    }
}

/// The recognised cause of a 403.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForbiddenCause {
    /// None of the causes below: usually, the caller lacks the right.
    MissingRight,
    /// A ResourceQuota of the namespace is used up.
    QuotaExceeded,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The ValidatingAdmissionPolicy of this name denied the request.
    AdmissionPolicy(String),
    /// A webhook or another admission plugin denied the request.
    Admission,
}

/// The fields of a Kubernetes `Status` that give the cause.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ForbiddenStatus {
    pub(crate) message: String,
    details: Option<ForbiddenDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ForbiddenDetails {
    causes: Option<Vec<StatusCause>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusCause {
    reason: String,
}

impl Forbidden {
    /// The cause.
    pub fn cause(&self) -> &ForbiddenCause {
        &self.cause
    }

    /// Whose call was refused.
    pub fn caller(&self) -> HubCaller {
        self.caller
    }

    /// Sets whose call was refused.
    #[must_use]
    pub(crate) fn for_caller(self, caller: HubCaller) -> Self {
        Self { caller, ..self }
    }

    /// Whether the ValidatingAdmissionPolicy of this name denied the request.
    pub fn is_by_policy(&self, name: &str) -> bool {
        matches!(&self.cause, ForbiddenCause::AdmissionPolicy(policy) if policy == name)
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<&str> for Forbidden {
    /// A 403 with only a message.
    fn from(message: &str) -> Self {
        Self {
            message: foreign_text::one_line(message, MESSAGE_CHARACTERS),
            cause: cause_in(message),
            caller: HubCaller::default(),
        }
    }
}

impl From<ForbiddenStatus> for Forbidden {
    fn from(status: ForbiddenStatus) -> Self {
        let mut forbidden = Self::from(status.message.as_str());
        // Kubernetes names this one cause (`NamespaceTerminatingCause` of k8s.io/api/core/v1).
        let terminating = |cause: &StatusCause| cause.reason == "NamespaceTerminating";
        let causes = status.details.and_then(|details| details.causes);
        // A webhook may set this field too.
        if forbidden.cause == ForbiddenCause::MissingRight
            && causes.unwrap_or_default().iter().any(terminating)
        {
            forbidden.cause = ForbiddenCause::NamespaceTerminating;
        }
        forbidden
    }
}

/// Reads the cause from the sentences of kube-apiserver. A message starts with the object, such as
/// `secrets "apps" is forbidden: `, and continues with one of:
/// - `exceeded quota: NAME, …` (plugin/pkg/admission/resourcequota);
/// - `ValidatingAdmissionPolicy 'NAME' with binding 'NAME' denied request: …`
///   (apiserver/pkg/admission/plugin/policy/validating);
/// - `admission webhook "NAME" denied the request: …` (apiserver/pkg/admission/plugin/webhook),
///   which has no object before it.
fn cause_in(message: &str) -> ForbiddenCause {
    // A webhook may repeat any sentence, so nothing behind its name is read.
    if message.starts_with("admission webhook \"") {
        return ForbiddenCause::Admission;
    }
    let sentence = message
        .split_once(" is forbidden: ")
        .map_or(message, |(_, sentence)| sentence);
    let policy = sentence
        .strip_prefix("ValidatingAdmissionPolicy '")
        .and_then(|rest| rest.split_once("' with binding '"));
    if let Some((name, _)) = policy {
        ForbiddenCause::AdmissionPolicy(name.to_owned())
    } else if sentence.starts_with("exceeded quota: ") {
        ForbiddenCause::QuotaExceeded
    } else {
        ForbiddenCause::MissingRight
    }
}

/// Whether a ValidatingAdmissionPolicy refused a request because the apiserver does not know the kind
/// of its parameter yet, or has not read the objects of that kind.
///
/// kube-apiserver refreshes its list of kinds every 30 s (`apiserver/pkg/server/options/admission.go`),
/// and `/readyz` does not wait for it. The sentences are of
/// `apiserver/pkg/admission/plugin/policy/generic`. They name the reason of a failure and decide
/// nothing: the request is refused either way.
pub(crate) fn policy_is_not_ready(message: &str) -> bool {
    message
        .split_once(" is forbidden: ValidatingAdmissionPolicy '")
        .filter(|(object, _)| !object.starts_with("admission webhook \""))
        .and_then(|(_, policy)| policy.split_once("' denied request: "))
        .is_some_and(|(_, cause)| {
            cause.starts_with(
                "failed to configure policy: failed to find resource referenced by paramKind: ",
            ) || cause.starts_with("failed to configure binding: paramKind kind `")
                && cause.ends_with("not yet synced to use for admission")
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::{Forbidden, ForbiddenCause, ForbiddenStatus, policy_is_not_ready};

    fn of(status: Value) -> Forbidden {
        Forbidden::from(serde_json::from_value::<ForbiddenStatus>(status).unwrap())
    }

    /// The messages are kube-apiserver's of 1.33 and 1.36, with other names.
    #[test]
    fn each_cause_is_read_from_its_own_sentence() {
        let policy = "serviceaccounts \"canary\" is forbidden: ValidatingAdmissionPolicy \
                      'keyferry-pairing' with binding 'keyferry-pairing' denied request: no";
        assert!(Forbidden::from(policy).is_by_policy("keyferry-pairing"));
        assert!(!Forbidden::from(policy).is_by_policy("keyferry"));
        for (message, cause) in [
            (
                "secrets \"apps\" is forbidden: exceeded quota: none, requested: secrets=1, used: \
                 secrets=0, limited: secrets=0",
                ForbiddenCause::QuotaExceeded,
            ),
            (
                "admission webhook \"w.example.com\" denied the request: no",
                ForbiddenCause::Admission,
            ),
            (
                "secrets is forbidden: User \"u\" cannot create resource \"secrets\" in API group \
                 \"\" in the namespace \"n\"",
                ForbiddenCause::MissingRight,
            ),
            ("", ForbiddenCause::MissingRight),
        ] {
            assert_eq!(*Forbidden::from(message).cause(), cause, "{message}");
        }
    }

    #[test]
    fn a_terminating_namespace_is_read_from_its_field() {
        let message = "secrets \"a\" is forbidden: unable to create new content in namespace n \
                       because it is being terminated";
        let details = json!({ "causes": [{ "reason": "NamespaceTerminating", "field": "metadata.namespace" }] });
        let forbidden = of(json!({ "message": message, "details": details }));
        assert_eq!(*forbidden.cause(), ForbiddenCause::NamespaceTerminating);
        assert_eq!(forbidden.to_string(), message);
        let forbidden = of(json!({ "message": message }));
        assert_eq!(*forbidden.cause(), ForbiddenCause::MissingRight);
    }

    /// The messages are kube-apiserver's of 1.33 and 1.37.
    #[test]
    fn a_policy_that_is_not_ready_is_read_from_its_own_sentence() {
        let start = "serviceaccounts \"reconciler\" is forbidden: ValidatingAdmissionPolicy \
                     'keyferry-pairing' ";
        let kind = "denied request: failed to configure policy: failed to find resource referenced \
                    by paramKind: 'keyferry.dev/v1alpha1, Kind=AudiencePairing'";
        let objects = "with binding 'keyferry-pairing' denied request: failed to configure binding: \
                       paramKind kind `keyferry.dev/v1alpha1, Kind=AudiencePairing` not yet synced \
                       to use for admission";
        for cause in [kind, objects] {
            assert!(policy_is_not_ready(&format!("{start}{cause}")), "{cause}");
        }
        let missing = "with binding 'keyferry-pairing-closed' denied request: failed to configure \
                       binding: no params found for policy binding with `Deny` \
                       parameterNotFoundAction";
        for message in [
            format!("{start}{missing}"),
            format!("{start}with binding 'keyferry-pairing' denied request: no {kind}"),
            format!("admission webhook \"w\" denied the request: {start}{kind}"),
            kind.to_owned(),
            String::new(),
        ] {
            assert!(!policy_is_not_ready(&message), "{message}");
        }
    }

    /// A policy's own message may quote anything.
    #[test]
    fn a_sentence_inside_another_is_not_a_cause() {
        for message in [
            "admission webhook \"w\" denied the request: ValidatingAdmissionPolicy \
             'keyferry-pairing' with binding 'b' denied request: no",
            "admission webhook \"w\" denied the request: secrets \"a\" is forbidden: \
             ValidatingAdmissionPolicy 'keyferry-pairing' with binding 'b' denied request: no",
            "secrets \"a\" is forbidden: User \"ValidatingAdmissionPolicy 'keyferry-pairing' with \
             binding 'b'\" cannot get resource",
        ] {
            assert!(!Forbidden::from(message).is_by_policy("keyferry-pairing"));
        }
    }
}
