//! The generation of an object: a hash that changes whenever its spec changes.

use std::collections::BTreeMap;

use crate::service_account::Uid;

/// A hash of an object's spec, or of its UID and `metadata.generation` on the hub. It changes
/// whenever the spec changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(u64);

impl Generation {
    /// The generation of a parsed `spec`, so comments and layout do not count.
    pub(crate) fn of(spec: &serde_json::Value) -> Self {
        Self::hash(&canonical(spec))
    }

    /// The generation of an object of the hub. An object recreated under the same name has another
    /// one.
    pub(crate) fn of_object(uid: &Uid, generation: i64) -> Self {
        Self::hash(&format!("{uid} {generation}"))
    }

    /// The generation of a role, which depends on its own spec and on that of its base.
    #[must_use]
    pub(crate) fn of_role(self, base: Self) -> Self {
        Self::hash(&format!("{:016x} as a role of {:016x}", self.0, base.0))
    }

    fn hash(text: &str) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        let first = digest
            .as_ref()
            .first_chunk::<8>()
            .copied()
            .unwrap_or_default();
        Self(u64::from_be_bytes(first))
    }
}

/// Writes JSON with sorted members, whichever map type `serde_json` was built with.
pub fn canonical(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(members) => {
            let sorted: BTreeMap<&String, String> = members
                .iter()
                .map(|(key, value)| (key, canonical(value)))
                .collect();
            let members: Vec<String> = sorted
                .into_iter()
                .map(|(key, value)| format!("{key:?}:{value}"))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        serde_json::Value::Array(items) => format!(
            "[{}]",
            items.iter().map(canonical).collect::<Vec<_>>().join(",")
        ),
        scalar => scalar.to_string(),
    }
}
