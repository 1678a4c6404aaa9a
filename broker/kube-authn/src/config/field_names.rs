//! Where an unknown field belongs, or which name it should have.

use crate::Minor;

/// Every field by its path, with the first release that has it if that is not the oldest one.
const KNOWN_FIELDS: &[(&str, Option<Minor>)] = &[
    ("apiVersion", None),
    ("kind", None),
    ("jwt", None),
    ("jwt[].issuer", None),
    ("jwt[].issuer.url", None),
    ("jwt[].issuer.discoveryURL", None),
    ("jwt[].issuer.certificateAuthority", None),
    ("jwt[].issuer.audiences", None),
    ("jwt[].issuer.audienceMatchPolicy", None),
    ("jwt[].issuer.egressSelectorType", Some(Minor::V1_34)),
    ("jwt[].claimValidationRules", None),
    ("jwt[].claimValidationRules[].claim", None),
    ("jwt[].claimValidationRules[].requiredValue", None),
    ("jwt[].claimValidationRules[].expression", None),
    ("jwt[].claimValidationRules[].message", None),
    ("jwt[].claimMappings", None),
    ("jwt[].claimMappings.username", None),
    ("jwt[].claimMappings.username.claim", None),
    ("jwt[].claimMappings.username.prefix", None),
    ("jwt[].claimMappings.username.expression", None),
    ("jwt[].claimMappings.groups", None),
    ("jwt[].claimMappings.groups.claim", None),
    ("jwt[].claimMappings.groups.prefix", None),
    ("jwt[].claimMappings.groups.expression", None),
    ("jwt[].claimMappings.uid", None),
    ("jwt[].claimMappings.uid.claim", None),
    ("jwt[].claimMappings.uid.expression", None),
    ("jwt[].claimMappings.extra", None),
    ("jwt[].claimMappings.extra[].key", None),
    ("jwt[].claimMappings.extra[].valueExpression", None),
    ("jwt[].userValidationRules", None),
    ("jwt[].userValidationRules[].expression", None),
    ("jwt[].userValidationRules[].message", None),
    ("anonymous", Some(Minor::V1_31)),
    ("anonymous.enabled", Some(Minor::V1_31)),
    ("anonymous.conditions", Some(Minor::V1_31)),
    ("anonymous.conditions[].path", Some(Minor::V1_31)),
];

/// Names of the `--oidc-*` flags, and names that people use for a field, folded.
const FIELD_ALIASES: &[(&str, &str)] = &[
    ("issuerurl", "jwt[].issuer.url"),
    ("oidcissuerurl", "jwt[].issuer.url"),
    ("clientid", "jwt[].issuer.audiences"),
    ("oidcclientid", "jwt[].issuer.audiences"),
    ("audience", "jwt[].issuer.audiences"),
    ("cafile", "jwt[].issuer.certificateAuthority"),
    ("oidccafile", "jwt[].issuer.certificateAuthority"),
    ("cabundle", "jwt[].issuer.certificateAuthority"),
    ("usernameclaim", "jwt[].claimMappings.username.claim"),
    ("usernameprefix", "jwt[].claimMappings.username.prefix"),
    ("groupsclaim", "jwt[].claimMappings.groups.claim"),
    ("groupsprefix", "jwt[].claimMappings.groups.prefix"),
    ("requiredclaim", "jwt[].claimValidationRules[].claim"),
    ("requiredclaims", "jwt[].claimValidationRules"),
];

/// Says what to do about the unknown field `key` of the object at `parent`, which is empty for the
/// file itself. Returns `None` if no field has a name like it.
pub(super) fn unknown_field_fix(parent: &str, key: &str, minor: Minor) -> Option<String> {
    // A name of this length is no slip, and comparing it costs time.
    if key.chars().count() > 64 {
        return None;
    }
    let inside = without_indexes(parent);
    let here = |path: &str| parent_of(path) == inside;
    if let Some((_, Some(since))) = KNOWN_FIELDS
        .iter()
        .find(|(path, _)| here(path) && name_of(path) == key)
    {
        return Some(format!(
            "remove {key}: the target's release {minor} does not know it; Kubernetes {since} and \
             newer do"
        ));
    }
    let known_fields: Vec<&str> = KNOWN_FIELDS
        .iter()
        .filter(|(_, since)| since.is_none_or(|since| minor >= since))
        .map(|(path, _)| *path)
        .collect();
    let folded = fold_name(key);
    let same = |path: &&&str| self::fold_name(name_of(path)) == folded;
    if let Some(path) = known_fields.iter().filter(|path| here(path)).find(same) {
        let name = name_of(path);
        return Some(format!("write {name}, because the case of a name counts"));
    }
    let mut places: Vec<&str> = known_fields.iter().filter(same).copied().collect();
    if places.is_empty() {
        let alias = FIELD_ALIASES.iter().find(|(alias, _)| *alias == folded);
        places.extend(alias.map(|(_, path)| *path));
    }
    if !places.is_empty() {
        return Some(format!("write it as {}", list_places(&places, parent)));
    }
    let near = |path: &&&str| is_near(name_of(path), key);
    if let Some(path) = known_fields.iter().filter(|path| here(path)).find(near) {
        return Some(format!("write {}, or remove it", name_of(path)));
    }
    let places: Vec<&str> = known_fields.iter().filter(near).copied().collect();
    (!places.is_empty())
        .then(|| format!("remove it, or write it as {}", list_places(&places, parent)))
}

/// Joins places, nearest to `parent` first, with the index of the entry that `parent` is in.
fn list_places(places: &[&str], parent: &str) -> String {
    let inside = without_indexes(parent);
    let mut places = places.to_vec();
    places.sort_by_key(|path| !path.starts_with(&inside));
    let entry = parent
        .strip_prefix("jwt")
        .and_then(|rest| rest.split_inclusive(']').next())
        .filter(|index| index.ends_with(']'));
    let places = places.iter().map(|path| match entry {
        Some(index) if path.starts_with("jwt[]") => path.replacen("[]", index, 1),
        _ => (*path).to_owned(),
    });
    places.collect::<Vec<_>>().join(" or ")
}

/// Whether a name differs from a known one in few letters.
fn is_near(known: &str, key: &str) -> bool {
    let apart = strsim::damerau_levenshtein(&fold_name(known), &fold_name(key));
    apart * 3 <= known.len()
}

/// Drops what people confuse in names: the case, dashes and underscores.
fn fold_name(name: &str) -> String {
    name.chars()
        .filter(|character| !"-_".contains(*character))
        .map(|character| character.to_ascii_lowercase())
        .collect()
}

fn name_of(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn parent_of(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Replaces each index of a path by empty brackets.
fn without_indexes(path: &str) -> String {
    path.chars()
        .filter(|character| !character.is_ascii_digit())
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::load_configuration;

    fn fix_at(parent: &str, key: &str) -> String {
        unknown_field_fix(parent, key, Minor::V1_36).unwrap_or_default()
    }

    #[test]
    fn a_misplaced_field_is_sent_to_its_place() {
        assert_eq!(
            fix_at("jwt[0]", "prefix"),
            "write it as jwt[0].claimMappings.username.prefix or \
             jwt[0].claimMappings.groups.prefix"
        );
        assert_eq!(
            fix_at("jwt[2]", "certificateAuthority"),
            "write it as jwt[2].issuer.certificateAuthority"
        );
        assert_eq!(
            fix_at("", "issuer"),
            "write it as jwt[].issuer",
            "the file itself is no entry"
        );
        assert_eq!(
            fix_at("jwt[0].issuer", "usernamePrefix"),
            "write it as jwt[0].claimMappings.username.prefix"
        );
        assert!(
            fix_at("jwt[0].claimMappings", "expression")
                .starts_with("write it as jwt[0].claimMappings.username.expression or"),
            "the nearest places come first"
        );
    }

    #[test]
    fn a_misspelt_field_gets_its_name() {
        assert!(fix_at("jwt[0]", "ClaimMappings").starts_with("write claimMappings,"));
        assert!(fix_at("jwt[0].issuer", "discoveryUrl").starts_with("write discoveryURL,"));
        assert_eq!(
            fix_at("jwt[0].issuer", "audiencez"),
            "write audiences, or remove it"
        );
        assert_eq!(
            fix_at("jwt[0]", "claimMapings"),
            "write claimMappings, or remove it"
        );
        assert_eq!(
            fix_at("jwt[0]", "certificateAuthorty"),
            "remove it, or write it as jwt[0].issuer.certificateAuthority"
        );
        assert_eq!(unknown_field_fix("jwt[0]", "zzzzzz", Minor::V1_36), None);
        assert_eq!(
            unknown_field_fix("jwt[0]", &"z".repeat(100_000), Minor::V1_36),
            None
        );
    }

    #[test]
    fn a_field_of_a_later_release_is_named_as_such() {
        let egress =
            unknown_field_fix("jwt[0].issuer", "egressSelectorType", Minor::V1_33).unwrap();
        assert!(
            egress.contains("1.33") && egress.contains("1.34"),
            "{egress}"
        );
        let misplaced = unknown_field_fix("jwt[0]", "egressSelectorType", Minor::V1_33);
        assert!(!misplaced.unwrap_or_default().contains("issuer.egress"));
    }

    /// The document that has the field at this path, with null as its value.
    fn document(path: &str) -> Value {
        let mut value = Value::Null;
        for name in path.rsplit('.') {
            value = match name.strip_suffix("[]") {
                Some(list) => json!({ list: [value] }),
                None => json!({ name: value }),
            };
        }
        value
    }

    #[test]
    fn the_names_are_those_of_the_decoder() {
        for (path, since) in KNOWN_FIELDS {
            for minor in Minor::ALL {
                let mut document = document(path);
                document["apiVersion"] = "apiserver.config.k8s.io/v1beta1".into();
                document["kind"] = "AuthenticationConfiguration".into();
                let loaded = load_configuration(document.to_string().as_bytes(), minor);
                let known = since.is_none_or(|since| minor >= since);
                assert_eq!(loaded.is_ok(), known, "{path} {minor}: {loaded:?}");
            }
        }
        for (_, path) in FIELD_ALIASES {
            assert!(
                KNOWN_FIELDS.iter().any(|(known, _)| known == path),
                "{path}"
            );
        }
    }
}
