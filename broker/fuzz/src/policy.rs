//! What administrators and tenants write: the configuration, objects of the hub, inputs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use keyferry_api::config::{
    self, ConfigError, MAX_CONFIG_BYTES, ObjectList, ReducedObject, ServerConfiguration,
    StoredAccess, StoredTarget,
};
use keyferry_api::foreign_text::escape_json;
use keyferry_core::inputs::collection::MAX_BYTES;
use keyferry_core::inputs::components::read_components;
use keyferry_fleet::object_stream::read_objects;
use serde_json::Value;

use crate::assert_shown;

/// The most characters of a mistake: a problem, a path and a fix.
const MAX_MISTAKE: usize = 4000;

/// A file that is accepted means the same with an empty document after it. Every mistake is on a line
/// of the file, and its text may be shown.
pub(crate) fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match config::read(text) {
        Ok(configuration) => {
            assert!(text.len() <= MAX_CONFIG_BYTES);
            // A line feed more is part of a block scalar that keeps its end.
            let end = match text.contains(['|', '>']) {
                true => "",
                false => "\n---\n# nothing\n",
            };
            let again = config::read(&format!("{text}{end}")).expect("it is read again");
            assert_eq!(
                format!("{:?}", again.policy),
                format!("{:?}", configuration.policy)
            );
        }
        Err(error) => check_mistakes(&error, text),
    }
    if let Err(error) = ObjectList::read(text) {
        check_mistakes(&error, text);
    }
}

fn check_mistakes(error: &ConfigError, text: &str) {
    assert!(!error.mistakes.is_empty());
    // A line may end in a line feed, a carriage return, or both.
    let lines = 1 + text.matches(['\n', '\r']).count();
    for mistake in &error.mistakes {
        assert!(
            usize::try_from(mistake.line).is_ok_and(|line| line <= lines),
            "{mistake:?}"
        );
        assert_shown(&mistake.to_string(), MAX_MISTAKE);
    }
}

/// An object that a tenant stored is read alike from the API and from a list of reduced objects, and
/// its name is that of the object. The fleet's reader takes the same text.
pub(crate) fn hub_object(data: &[u8]) {
    let mut count = 0;
    let read = read_objects(data, |object| {
        count += 1;
        check_stored(&object.into_value());
    });
    if let Err(error) = read {
        assert_shown(&error.to_string(), 200);
    }
    assert!(count <= data.len());
    if let Ok(object) = serde_json::from_slice(data) {
        check_stored(&object);
    }
}

fn check_stored(object: &Value) {
    let reduced = ReducedObject::of(object);
    let access = StoredAccess::read(object);
    assert_eq!(access, StoredAccess::read_reduced(&reduced));
    if let Some((name, _)) = access {
        assert_eq!(object["metadata"]["namespace"], *name.namespace.as_str());
        assert_eq!(object["metadata"]["name"], *name.name.as_str());
    }
    let target = StoredTarget::read(object, &SERVER);
    assert_eq!(target, StoredTarget::read_reduced(&reduced, &SERVER));
    if let Some((name, target)) = target {
        assert_eq!(object["metadata"]["name"], *name.as_str());
        assert!(target.meant().is_none_or(|meant| meant.name == name));
    }
}

static SERVER: LazyLock<ServerConfiguration> = LazyLock::new(|| {
    config::of_hub_objects("hub", "https://keyferry.example.com", "keyferry")
        .expect("a configuration")
        .server
});

/// Inputs that are accepted stay below the limit, and are the same when they are written again as
/// JSON. An error repeats no value.
pub(crate) fn inputs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let entries = |text: String| BTreeMap::from([("app.yaml".to_owned(), text)]);
    let collection = match read_components("keyferry-inputs-prod", &entries(text.to_owned()), false)
    {
        Ok(collection) => collection,
        Err(error) => return assert_shown(&error.to_string(), 1000),
    };
    assert!(collection.bytes().len() <= MAX_BYTES);
    let body = std::str::from_utf8(collection.bytes()).expect("UTF-8");
    let input = body
        .strip_prefix(r#"{"inputs":["#)
        .and_then(|rest| rest.strip_suffix("]}"))
        .expect("a list of inputs");
    assert!(input.starts_with(r#"{"id":"app""#));
    let again = read_components("keyferry-inputs-prod", &entries(escape_json(input)), false);
    assert_eq!(again.as_ref(), Ok(&collection));
}
