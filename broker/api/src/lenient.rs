//! Reads JSON that others write. A member of another form than expected reads as if it were absent,
//! so that one odd member does not hide the rest of its object.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A whole document in which nothing is required: one of another form reads as the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lenient<T>(pub T);

impl<'de, T: DeserializeOwned + Default> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        or_default(deserializer).map(Self)
    }
}

/// Reads a member, or the default if it has another form.
///
/// # Errors
/// The text is not JSON.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Reads the items of a list, without those of another form. What is no list has no items.
///
/// # Errors
/// The text is not JSON.
pub fn readable_items<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let Value::Array(items) = Value::deserialize(deserializer)? else {
        return Ok(Vec::new());
    };
    let read = |item| serde_json::from_value(item).ok();
    Ok(items.into_iter().filter_map(read).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(default)]
    struct Sample {
        #[serde(deserialize_with = "or_default")]
        name: String,
        #[serde(deserialize_with = "readable_items")]
        groups: Vec<String>,
    }

    fn read(document: Value) -> Sample {
        serde_json::from_value::<Lenient<Sample>>(document)
            .unwrap()
            .0
    }

    #[test]
    fn an_odd_member_hides_no_other() {
        let name_alone = Sample {
            name: "a".to_owned(),
            groups: Vec::new(),
        };
        for groups in [json!(null), json!("g"), json!({}), json!([1])] {
            let document = json!({ "name": "a", "groups": groups, "other": { "b": 1 } });
            assert_eq!(read(document), name_alone, "{groups}");
        }
        let groups = read(json!({ "name": 7, "groups": ["g", null, "h"] }));
        assert_eq!((groups.name.as_str(), groups.groups.len()), ("", 2));
    }

    #[test]
    fn a_document_of_another_form_is_empty() {
        for document in [json!(null), json!("a"), json!(1), json!([{}])] {
            assert_eq!(read(document.clone()), Sample::default(), "{document}");
        }
    }
}
