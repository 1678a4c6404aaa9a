//! TargetClusters and TargetAccesses as `kubectl get -o yaml` or `-o json` prints them: objects of
//! a hub with their statuses, for commands that cannot ask the hub.

use std::collections::BTreeSet;

use serde_json::Value;

use super::document::{self, Document, MAX_CONFIG_BYTES};
use super::mistake::{ConfigError, Mistake};
use super::stored::Record;
use super::target::API_VERSION;
use crate::name::{Namespace, ObjectName};

/// The most objects of a list.
const MAX_OBJECTS: usize = 20_000;
/// The most mistakes that are reported: a file of another kind would have one in each line.
const MAX_MISTAKES: usize = 20;
/// How to get what is expected.
const FIX: &str = "give the output of `kubectl get targetclusters,targetaccesses -A -o yaml`";

/// Objects of a hub as the API returns them. Each has a name, a UID, a generation and a creation
/// time, and no two of a kind have the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectList {
    /// The TargetClusters.
    pub targets: Vec<Value>,
    /// The TargetAccesses.
    pub accesses: Vec<Value>,
}

impl ObjectList {
    /// Reads a YAML stream or JSON: lists of kind `List`, single objects, or both.
    ///
    /// # Errors
    /// [`ConfigError`]: the text is too large, is not YAML, or has something else than such objects.
    /// No message repeats a value of an object of another kind.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        if text.len() > MAX_CONFIG_BYTES {
            let problem = format!("the list is larger than {MAX_CONFIG_BYTES} bytes");
            let fix = "list fewer objects, and leave out --show-managed-fields";
            return Err(ConfigError {
                mistakes: vec![Mistake::whole_file(problem, fix)],
            });
        }
        let documents = document::documents(text)?;
        let mut reader = Reader::default();
        if documents.is_empty() {
            reader
                .mistakes
                .push(Mistake::whole_file("it has no object", FIX));
        }
        for document in &documents {
            reader.document(document);
        }
        if reader.mistakes.is_empty() {
            Ok(reader.list)
        } else {
            reader.mistakes.truncate(MAX_MISTAKES);
            Err(ConfigError {
                mistakes: reader.mistakes,
            })
        }
    }
}

/// Collects the objects of all documents.
#[derive(Default)]
struct Reader<'a> {
    list: ObjectList,
    /// The kinds, namespaces and names so far.
    names: BTreeSet<(&'a str, &'a str, &'a str)>,
    mistakes: Vec<Mistake>,
}

/// An object, and where it is in its document.
struct Item<'a> {
    document: &'a Document,
    value: &'a Value,
    /// Its path with a full stop at the end; empty for the whole document.
    path: String,
}

impl<'a> Item<'a> {
    fn text(&self, pointer: &str) -> &'a str {
        self.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn mistake(&self, field: &str, problem: impl Into<String>, fix: &str) -> Mistake {
        let path = format!("{}{field}", self.path);
        self.document
            .mistake(path.trim_end_matches('.'), problem, fix)
    }
}

impl<'a> Reader<'a> {
    fn document(&mut self, document: &'a Document) {
        let whole = Item {
            document,
            value: document.value(),
            path: String::new(),
        };
        if (document.api_version(), document.kind()) != ("v1", "List") {
            self.object(&whole);
            return;
        }
        self.check_members(&whole, &["apiVersion", "kind", "metadata", "items"]);
        if !whole.text("/metadata/continue").is_empty() {
            let problem = "the list is one page of several";
            self.mistakes
                .push(whole.mistake("metadata.continue", problem, FIX));
        }
        let Some(items) = whole.value.get("items").and_then(Value::as_array) else {
            self.mistakes
                .push(whole.mistake("items", "is not a sequence", FIX));
            return;
        };
        for (index, value) in items.iter().enumerate() {
            self.object(&Item {
                document,
                value,
                path: format!("items[{index}]."),
            });
        }
    }

    fn object(&mut self, item: &Item<'a>) {
        if self.mistakes.len() >= MAX_MISTAKES {
            return;
        }
        let (version, kind) = (item.text("/apiVersion"), item.text("/kind"));
        if version != API_VERSION || !matches!(kind, "TargetCluster" | "TargetAccess") {
            let problem = if item.value.is_object() {
                format!("{version:?} {kind:?} is neither a TargetCluster nor a TargetAccess")
            } else {
                "is not an object".to_owned()
            };
            self.mistakes.push(item.mistake("", problem, FIX));
            return;
        }
        if self.list.targets.len() + self.list.accesses.len() >= MAX_OBJECTS {
            let problem = format!("there are more than {MAX_OBJECTS} objects");
            self.mistakes.push(item.mistake("", problem, "list fewer"));
            return;
        }
        self.check_members(item, &["apiVersion", "kind", "metadata", "spec", "status"]);
        self.check_metadata(item, kind);
        match kind {
            "TargetCluster" => self.list.targets.push(item.value.clone()),
            _ => self.list.accesses.push(item.value.clone()),
        }
    }

    fn check_members(&mut self, item: &Item<'a>, known: &[&str]) {
        let members = item.value.as_object().into_iter().flatten();
        let unknown = members.filter(|(name, _)| !known.contains(&name.as_str()));
        for (name, _) in unknown.take(MAX_MISTAKES) {
            self.mistakes
                .push(item.mistake(name, "is not a field of this object", "remove it"));
        }
    }

    /// Checks for the metadata that a hub's API always sets. An object without it was written by
    /// hand, so no hub has compared its audience with those of other targets.
    fn check_metadata(&mut self, item: &Item<'a>, kind: &'a str) {
        let (namespace, name) = (
            item.text("/metadata/namespace"),
            item.text("/metadata/name"),
        );
        let is_access = kind == "TargetAccess";
        if let Err(error) = ObjectName::new(name) {
            self.mistakes
                .push(item.mistake("metadata.name", error.to_string(), FIX));
        }
        let namespace_mistake = if is_access {
            Namespace::new(namespace)
                .err()
                .map(|error| error.to_string())
        } else {
            (!namespace.is_empty()).then(|| "a TargetCluster has no namespace".to_owned())
        };
        self.mistakes
            .extend(namespace_mistake.map(|it| item.mistake("metadata.namespace", it, FIX)));
        let generation = item.value.pointer("/metadata/generation");
        if Record::of(item.value).is_none() || generation.and_then(Value::as_i64).is_none() {
            let problem = "has no uid, resourceVersion, generation or creationTimestamp, so it was \
                not read from a hub";
            self.mistakes.push(item.mistake("metadata", problem, FIX));
        }
        if !self.names.insert((kind, namespace, name)) {
            let problem = format!("a second {kind} has this name");
            self.mistakes.push(item.mistake(
                "metadata.name",
                problem,
                "list the objects of one hub, once",
            ));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use serde_json::{Value, json};

    use super::{MAX_CONFIG_BYTES, MAX_MISTAKES, ObjectList};

    fn object(kind: &str, namespace: Option<&str>, name: &str) -> Value {
        let mut object = json!({
            "apiVersion": "keyferry.dev/v1alpha1", "kind": kind,
            "metadata": {
                "name": name, "uid": format!("uid-{name}"), "generation": 1, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{ "manager": "kubectl" }],
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}" },
            },
            "spec": {}, "status": { "observedGeneration": 1 },
        });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object
    }

    fn target(name: &str) -> Value {
        object("TargetCluster", None, name)
    }

    fn list(items: &[Value]) -> Value {
        json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" }, "items": items })
    }

    fn refused(text: &str) -> String {
        ObjectList::read(text).unwrap_err().to_string()
    }

    #[test]
    fn lists_and_single_objects_are_read() {
        let (prod, access) = (
            target("prod"),
            object("TargetAccess", Some("tenant-a"), "prod"),
        );
        let items = [prod.clone(), access.clone()];
        let as_list = ObjectList::read(&list(&items).to_string()).unwrap();
        assert_eq!(
            (as_list.targets.as_slice(), as_list.accesses.as_slice()),
            (&[prod.clone()][..], &[access.clone()][..])
        );
        let stream = format!("# two\n---\n{prod}\n---\n{access}\n---\n");
        assert_eq!(ObjectList::read(&stream).unwrap(), as_list);
        let lists = format!("{}\n---\n{}\n", list(&[prod]), list(&[access]));
        assert_eq!(ObjectList::read(&lists).unwrap(), as_list);
        assert_eq!(
            ObjectList::read(&list(&[]).to_string()).unwrap(),
            ObjectList::default()
        );
        let yaml = "apiVersion: v1\nitems:\n- apiVersion: keyferry.dev/v1alpha1\n  kind: TargetCluster\n  metadata:\n    \
            creationTimestamp: \"2026-01-01T00:00:00Z\"\n    generation: 2\n    name: prod\n    resourceVersion: \"7\"\n    \
            uid: 7b1c\n  spec:\n    caData: |\n      a\n      b\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
        let read = ObjectList::read(yaml).unwrap();
        assert_eq!(read.targets[0]["spec"]["caData"], "a\nb\n");
        assert_eq!(read.targets[0]["metadata"]["generation"], 2);
    }

    #[test]
    fn anything_else_is_refused() {
        let changed = |pointer: &str, to: Value| {
            let mut object = target("prod");
            *object.pointer_mut(pointer).unwrap() = to;
            object.to_string()
        };
        let mut unknown = target("prod");
        unknown["data"] = json!({});
        let mut page = list(&[target("prod")]);
        page["metadata"]["continue"] = json!("next");
        let mut no_items = list(&[]);
        no_items["items"] = json!({ "a": 1 });
        let cases = [
            (String::new(), "it has no object"),
            ("# nothing\n".to_owned(), "it has no object"),
            ("prod".to_owned(), "is not an object"),
            ("[]".to_owned(), "is not an object"),
            (list(&[json!(7)]).to_string(), "items[0]: is not an object"),
            (list(&[list(&[])]).to_string(), "\"v1\" \"List\" is neither"),
            (page.to_string(), "one page of several"),
            (no_items.to_string(), "items: is not a sequence"),
            (unknown.to_string(), "data: is not a field"),
            (changed("/kind", json!("Secret")), "\"Secret\" is neither"),
            (
                changed("/apiVersion", json!("keyferry.dev/v1")),
                "is neither",
            ),
            (changed("/metadata", json!([])), "metadata.name"),
            (changed("/metadata/name", json!("../prod")), "metadata.name"),
            (changed("/metadata/uid", json!(null)), "not read from a hub"),
            (
                changed("/metadata/generation", json!(null)),
                "not read from a hub",
            ),
            (
                changed("/metadata/generation", json!("1")),
                "not read from a hub",
            ),
            (
                changed("/metadata/creationTimestamp", json!("now")),
                "not read from a hub",
            ),
            (
                object("TargetCluster", Some("a"), "prod").to_string(),
                "a TargetCluster has no namespace",
            ),
            (
                object("TargetAccess", None, "prod").to_string(),
                "metadata.namespace",
            ),
            (
                format!(
                    "{}\n---\n{}\n",
                    list(&[target("a"), target("prod")]),
                    target("prod")
                ),
                "a second TargetCluster has this name",
            ),
            ("{".to_owned(), "the YAML cannot be read"),
            ("a: &a [1]\nb: *c\n".to_owned(), "the YAML cannot be read"),
            ("a: 1\na: 2\n".to_owned(), "the YAML cannot be read"),
            (
                format!("{}{}", "[".repeat(100), "]".repeat(100)),
                "the YAML cannot be read",
            ),
            (" ".repeat(MAX_CONFIG_BYTES + 1), "is larger than"),
        ];
        for (text, expected) in cases {
            let problem = refused(&text);
            assert!(problem.contains(expected), "{expected}: {problem}");
        }
        // The same name in two namespaces, and of two kinds.
        let apart = list(&[
            target("prod"),
            object("TargetAccess", Some("a"), "prod"),
            object("TargetAccess", Some("b"), "prod"),
        ]);
        assert_eq!(
            ObjectList::read(&apart.to_string()).unwrap().accesses.len(),
            2
        );
    }

    #[test]
    fn mistakes_are_few_and_repeat_no_value_of_a_foreign_object() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
            "data": { "token": "hunter2" }, "stringData": { "hunter2": "x" },
        });
        let one = refused(&secret.to_string());
        assert!(
            !one.contains("hunter2") && one.contains("kubectl get"),
            "{one}"
        );
        let many = refused(&list(&vec![secret; 5_000]).to_string());
        assert_eq!(many.lines().count(), MAX_MISTAKES, "{many}");
        assert!(many.len() < 20_000 && !many.contains("hunter2"));
        let mut long = target("prod");
        long["kind"] = json!("x".repeat(1 << 20));
        assert!(refused(&long.to_string()).len() < 2_000);
    }
}
