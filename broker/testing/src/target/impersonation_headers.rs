//! The user that the `Impersonate-` headers of a request ask for.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::http::HeaderMap;

use crate::identity::UserInfo;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// A request asks for a group, a UID or an extra, but for no user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserMissing {
    wanted: UserInfo,
}

/// Reads the headers: the user exactly as asked for, without any group that the target adds. `None`
/// if no user is impersonated.
pub(super) fn wanted_user(headers: &HeaderMap) -> Result<Option<UserInfo>, UserMissing> {
    let values = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    // Only the first of several headers counts, as with Go's `Header.Get`.
    let first = |name: &str| values(name).into_iter().next().unwrap_or_default();
    let mut extra = BTreeMap::<String, Vec<String>>::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = unescaped(key);
            extra.entry(key).or_default().extend(values(name.as_str()));
        }
    }
    let wanted = UserInfo {
        username: first(USER),
        uid: first(UID),
        groups: values(GROUP),
        extra,
    };
    let more = !wanted.uid.is_empty() || !wanted.groups.is_empty() || !wanted.extra.is_empty();
    match (wanted.username.is_empty(), more) {
        (false, _) => Ok(Some(wanted)),
        (true, false) => Ok(None),
        (true, true) => Err(UserMissing { wanted }),
    }
}

/// Decodes `%2F` and the like. A key that is badly encoded stays as it is.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let digits = digits.filter(|two| two.bytes().all(|it| it.is_ascii_hexdigit()));
        let Some(decoded) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) else {
            return key.to_owned();
        };
        bytes.push(decoded);
        rest = &after[2..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl UserMissing {
    /// The message of constrained impersonation (1.36): the wanted user as Go prints it.
    pub(super) fn message(&self) -> String {
        let UserInfo {
            username,
            uid,
            groups,
            extra,
        } = &self.wanted;
        let groups = match groups.as_slice() {
            [] => "[]string(nil)".to_owned(),
            groups => go_strings(groups),
        };
        let extra = if extra.is_empty() {
            "map[string][]string(nil)".to_owned()
        } else {
            let entries: Vec<String> = extra
                .iter()
                .map(|(key, values)| format!("{key:?}:{}", go_strings(values)))
                .collect();
            format!("map[string][]string{{{}}}", entries.join(", "))
        };
        format!(
            "requested &user.DefaultInfo{{Name:{username:?}, UID:{uid:?}, Groups:{groups}, \
             Extra:{extra}}} without impersonating a user name"
        )
    }

    /// The message before 1.36: the parts of the wanted user as Go prints object references.
    pub(super) fn legacy_message(&self) -> String {
        let version = "authentication.k8s.io/v1";
        let mut parts: Vec<String> = Vec::new();
        for group in &self.wanted.groups {
            parts.push(format!("{{Group  {group}    }}"));
        }
        for (key, values) in &self.wanted.extra {
            for value in values {
                parts.push(format!("{{UserExtra  {value}  {version}  {key}}}"));
            }
        }
        if !self.wanted.uid.is_empty() {
            parts.push(format!("{{UID  {}  {version}  }}", self.wanted.uid));
        }
        format!(
            "requested [{}] without impersonating a user",
            parts.join(" ")
        )
    }
}

fn go_strings(texts: &[String]) -> String {
    let mut all = String::from("[]string{");
    for (index, text) in texts.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(all, "{comma}{text:?}");
    }
    all.push('}');
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |&(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn every_header_counts() {
        let wanted = wanted_user(&headers(&[
            ("Impersonate-User", "jane"),
            ("Impersonate-User", "joe"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Uid", "u"),
            ("Impersonate-Extra-Example.com%2fRole", "x"),
            ("Impersonate-Extra-Example.com%2fRole", "y"),
            ("Impersonate-Extra-broken%2", "z"),
        ]));
        let wanted = wanted.unwrap().unwrap();
        assert_eq!(
            (wanted.username.as_str(), wanted.uid.as_str()),
            ("jane", "u")
        );
        assert_eq!(wanted.groups, ["a", "b"]);
        assert_eq!(wanted.extra["example.com/role"], ["x", "y"]);
        assert_eq!(wanted.extra["broken%2"], ["z"]);
        assert_eq!(wanted_user(&headers(&[])), Ok(None));
        assert_eq!(wanted_user(&headers(&[("Impersonate-User", "")])), Ok(None));
    }

    #[test]
    fn a_request_without_a_user_is_refused_in_the_words_of_go() {
        let missing = wanted_user(&headers(&[
            ("Impersonate-Group", "a"),
            ("Impersonate-Extra-k", "v"),
            ("Impersonate-Uid", "u"),
        ]))
        .unwrap_err();
        assert_eq!(
            missing.message(),
            "requested &user.DefaultInfo{Name:\"\", UID:\"u\", Groups:[]string{\"a\"}, \
             Extra:map[string][]string{\"k\":[]string{\"v\"}}} without impersonating a user name"
        );
        assert_eq!(
            missing.legacy_message(),
            "requested [{Group  a    } {UserExtra  v  authentication.k8s.io/v1  k} {UID  u  \
             authentication.k8s.io/v1  }] without impersonating a user"
        );
        let group = wanted_user(&headers(&[("Impersonate-Group", "a")])).unwrap_err();
        assert!(group.message().contains("Extra:map[string][]string(nil)}"));
    }
}
