//! The user that requests impersonate at a target.

use keyferry_kube_authn::Code;
use serde_json::Value;

use crate::doctor::diagnosis::Problem;
use crate::doctor::resource_attributes::ResourceAttributes;
use crate::doctor::target_user::TargetUser;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const NODE: &str = "system:node:";
/// The API group of the constrained form, and of UIDs and extras.
const GROUP: &str = "authentication.k8s.io";

/// A user to impersonate, as the `Impersonate-` headers name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonatedUser {
    /// The user name.
    pub name: String,
    /// The groups; without any, the target gives a ServiceAccount those of its namespace.
    pub groups: Vec<String>,
    /// The UID.
    pub uid: Option<String>,
    /// Keys and values of `extra`. A key with several values is there several times.
    pub extra: Vec<(String, String)>,
}

impl ImpersonatedUser {
    /// A user with this name and nothing else.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// A ServiceAccount of the target, by its name alone, as Flux impersonates it.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::named(format!("{SERVICE_ACCOUNT}{namespace}:{name}"))
    }

    /// Returns the namespace and name, if it is a ServiceAccount.
    #[must_use]
    pub fn account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
    }

    /// Returns the headers, by name and value.
    #[must_use]
    pub fn headers(&self) -> Vec<(String, &str)> {
        let mut headers = vec![("Impersonate-User".to_owned(), self.name.as_str())];
        for group in &self.groups {
            headers.push(("Impersonate-Group".to_owned(), group));
        }
        if let Some(uid) = &self.uid {
            headers.push(("Impersonate-Uid".to_owned(), uid));
        }
        for (key, value) in &self.extra {
            headers.push((format!("Impersonate-Extra-{}", escaped(key)), value));
        }
        headers
    }

    /// Returns what to ask of an access review to learn whether the name may be impersonated: by
    /// the verb `impersonate`, or else by the constrained form of Kubernetes 1.36 (KEP-5284).
    pub(crate) fn rights(&self) -> [ResourceAttributes; 2] {
        if let Some((namespace, name)) = self.account() {
            return [("", "impersonate"), (GROUP, "impersonate:serviceaccount")].map(
                |(group, verb)| ResourceAttributes {
                    verb: verb.to_owned(),
                    group: group.to_owned(),
                    resource: "serviceaccounts".to_owned(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    ..ResourceAttributes::default()
                },
            );
        }
        let (verb, resource, name) = match self.name.strip_prefix(NODE) {
            Some(node) => ("impersonate:arbitrary-node", "nodes", node),
            None => ("impersonate:user-info", "users", self.name.as_str()),
        };
        let right = |verb: &str, group: &str, resource: &str, name: &str| ResourceAttributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        };
        [
            right("impersonate", "", "users", &self.name),
            right(verb, GROUP, resource, name),
        ]
    }

    /// Compares with the `userInfo` that the target answers: it ignores impersonation if that is
    /// another user, or a part that was asked for is missing.
    #[must_use]
    pub fn ignored(&self, answered: &Value) -> Option<Problem> {
        let answered = TargetUser::of(answered);
        let (name, wanted) = (&answered.username, &self.name);
        let detail = if name != wanted {
            format!("the target answers as {name:?} where {wanted:?} is impersonated")
        } else if let Some(part) = self.missing_part(&answered) {
            format!("the target answers as {wanted:?} without the impersonated {part}")
        } else {
            return None;
        };
        Some(Problem::new(Code::ImpersonationIgnored, detail))
    }

    fn missing_part(&self, answered: &TargetUser) -> Option<String> {
        let mut groups = self.groups.iter();
        if let Some(group) = groups.find(|group| !answered.groups.contains(group)) {
            return Some(format!("group {group:?}"));
        }
        if let Some(uid) = self.uid.as_ref().filter(|uid| answered.uid != **uid) {
            return Some(format!("UID {uid:?}"));
        }
        // The target lower-cases every key.
        let missing = |(key, value): &&(String, String)| {
            let values = answered.extra.get(&key.to_ascii_lowercase());
            !values.is_some_and(|values| values.contains(value))
        };
        let (key, value) = self.extra.iter().find(missing)?;
        Some(format!("extra {key:?}={value:?}"))
    }
}

/// Encodes what a header's name cannot carry, such as the slash of `example.com/team`.
fn escaped(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn everything() -> ImpersonatedUser {
        ImpersonatedUser {
            groups: vec!["a".to_owned(), "b".to_owned()],
            uid: Some("u".to_owned()),
            extra: vec![("Example.com/team".to_owned(), "r%".to_owned())],
            ..ImpersonatedUser::named("jane")
        }
    }

    #[test]
    fn headers_name_every_part() {
        let user = everything();
        let expected = [
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Uid", "u"),
            ("Impersonate-Extra-Example.com%2Fteam", "r%"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(user.headers(), expected);
    }

    #[test]
    fn the_rights_are_on_what_the_name_is() {
        let resources = |name: &str| {
            ImpersonatedUser::named(name)
                .rights()
                .map(|right| right.in_words().replace(" in apps", ""))
                .join(", ")
        };
        assert_eq!(
            resources("system:serviceaccount:apps:deployer"),
            "impersonate serviceaccounts deployer, \
             impersonate:serviceaccount serviceaccounts deployer"
        );
        assert_eq!(
            resources("jane"),
            "impersonate users jane, impersonate:user-info users jane"
        );
        assert_eq!(
            resources("system:node:n1"),
            "impersonate users system:node:n1, impersonate:arbitrary-node nodes n1"
        );
    }

    #[test]
    fn a_dropped_part_is_found() {
        let user = everything();
        let answered = json!({
            "username": "jane", "uid": "u", "groups": ["a", "b", "system:authenticated"],
            "extra": { "example.com/team": ["r%"] },
        });
        assert_eq!(user.ignored(&answered), None);
        for (field, value, part) in [
            (
                "username",
                json!("bearer"),
                "answers as \"bearer\" where \"jane\"",
            ),
            ("groups", json!(["a"]), "group \"b\""),
            ("groups", Value::Null, "group \"a\""),
            ("uid", Value::Null, "UID \"u\""),
            ("extra", json!({}), "extra \"Example.com/team\"=\"r%\""),
        ] {
            let mut changed = answered.clone();
            changed[field] = value;
            let problem = user.ignored(&changed).unwrap();
            assert!(problem.detail.contains(part), "{}", problem.detail);
        }
    }
}
