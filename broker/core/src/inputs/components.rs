//! The inputs of a target's platform components, from the ConfigMap `keyferry-inputs-<target>`.

use std::collections::BTreeMap;

use keyferry_api::name::ObjectName;
use serde_json::{Map, Value};

use super::collection::{Collection, MAX_BYTES};
use super::error::InputsError;

/// The prefix of the ConfigMaps' names.
const CONFIG_MAP_PREFIX: &str = "keyferry-inputs-";

/// The name of a target's ConfigMap.
pub fn config_map_name(target: &ObjectName) -> String {
    [CONFIG_MAP_PREFIX, target.as_str()].concat()
}

/// The target of a ConfigMap; `None` if it is not a ConfigMap of inputs.
pub fn target_of(config_map: &str) -> Option<ObjectName> {
    ObjectName::new(config_map.strip_prefix(CONFIG_MAP_PREFIX)?).ok()
}

/// Makes the inputs of the entries of a ConfigMap: each key is the id of a component, without an
/// ending `.yaml`, and its value a YAML mapping. Each component can have its own writer, by
/// server-side apply.
///
/// # Errors
/// [`InputsError`]. One bad entry refuses them all, because Flux Operator deletes the objects of
/// missing inputs. No text repeats a value.
pub fn read_components(
    config_map: &str,
    data: &BTreeMap<String, String>,
    has_binary_data: bool,
) -> Result<Collection, InputsError> {
    let invalid = |problem: String| InputsError::Invalid {
        config_map: config_map.to_owned(),
        problem,
    };
    if has_binary_data {
        return Err(invalid("it has binaryData, which is not read".to_owned()));
    }
    let bytes: usize = data.values().map(String::len).sum();
    if bytes > MAX_BYTES {
        return Err(InputsError::TooLarge(bytes));
    }
    let mut inputs = BTreeMap::new();
    for (key, text) in data {
        let id = key
            .strip_suffix(".yaml")
            .or_else(|| key.strip_suffix(".yml"))
            .or_else(|| key.strip_suffix(".json"))
            .unwrap_or(key);
        let members = parse_mapping(text)
            .ok_or_else(|| invalid(format!("key {key} is not a YAML mapping")))?;
        if members.get("id").is_some_and(|stated| stated != id) {
            return Err(invalid(format!("key {key} states another id than its own")));
        }
        if inputs.insert(id.to_owned(), members).is_some() {
            return Err(invalid(format!("two keys have the id {id}")));
        }
    }
    Collection::new(inputs)
}

fn parse_mapping(text: &str) -> Option<Map<String, Value>> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 200_000, max_nodes: 100_000, max_documents: 1, max_depth: 32, max_aliases: 0, max_anchors: 0 },
        legacy_octal_numbers: true,
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
    };
    // The parser's message would quote its input, so it is dropped.
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Object(members)) => Some(members),
        // A component without settings.
        Ok(Value::Null) => Some(Map::new()),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use keyferry_api::name::ObjectName;
    use keyferry_api::reason::Reason;
    use proptest::prelude::*;

    use super::{Collection, InputsError, config_map_name, read_components, target_of};

    fn of(entries: &[(&str, &str)]) -> Result<Collection, InputsError> {
        let data = entries
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect();
        read_components("keyferry-inputs-prod", &data, false)
    }

    #[test]
    fn each_key_is_a_component() {
        let collection = of(&[
            ("ingress.yaml", "version: 1.2.3\nreplicas: 2\n"),
            ("cert-manager", "{channel: stable, id: cert-manager}"),
            ("metrics.json", "{\"a\": null}"),
            ("nothing", ""),
        ]);
        assert_eq!(
            str::from_utf8(collection.unwrap().bytes()).unwrap(),
            concat!(
                r#"{"inputs":[{"id":"cert-manager","channel":"stable"},"#,
                r#"{"id":"ingress","replicas":2,"version":"1.2.3"},"#,
                r#"{"id":"metrics","a":null},{"id":"nothing"}]}"#
            )
        );
        assert_eq!(&**of(&[]).unwrap().bytes(), br#"{"inputs":[]}"#);
    }

    #[test]
    fn one_bad_entry_refuses_them_all_without_its_value() {
        let bomb = format!("a: &a {{}}\nb: [{}]", "*a, ".repeat(1000));
        for (key, text, reason) in [
            ("b", "[hunter2]", Reason::InputsInvalid),
            ("b", "hunter2", Reason::InputsInvalid),
            ("b", "a: [hunter2", Reason::InputsInvalid),
            ("b", "a: 1\n---\nb: hunter2", Reason::InputsInvalid),
            ("b", "a: hunter2\na: 2", Reason::InputsInvalid),
            ("b", "id: hunter2", Reason::InputsInvalid),
            ("b", "id: 1", Reason::InputsInvalid),
            ("a.yaml", "x: hunter2", Reason::InputsInvalid),
            ("b", bomb.as_str(), Reason::InputsInvalid),
            ("b", "password: hunter2", Reason::InputLooksSecret),
        ] {
            let error = of(&[("a", "x: 1"), (key, text)]).unwrap_err();
            assert_eq!(error.reason(), reason, "{text}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert_eq!(
            read_components("c", &BTreeMap::new(), true)
                .unwrap_err()
                .reason(),
            Reason::InputsInvalid
        );
        let large = "x".repeat(900 * 1024);
        assert_eq!(
            of(&[("a", &format!("x: {large}"))]).unwrap_err().reason(),
            Reason::InputsTooLarge
        );
    }

    #[test]
    fn a_config_map_belongs_to_the_target_in_its_name() {
        let target = ObjectName::new("prod-eu").unwrap();
        assert_eq!(target_of(&config_map_name(&target)), Some(target));
        for other in [
            "keyferry-config",
            "keyferry-inputs-",
            "keyferry-inputs",
            "x",
        ] {
            assert_eq!(target_of(other), None, "{other}");
        }
    }

    proptest! {
        /// A bounded fuzz run: any text is either read as a collection or refused.
        #[test]
        fn any_text_ends(key in "[-._a-zA-Z0-9]{1,20}", text in "[-a-z:\\[\\]{}&*!|>'\"#\\n ,.?0-9]{0,200}") {
            let _ = of(&[(&key, &text)]);
        }
    }
}
