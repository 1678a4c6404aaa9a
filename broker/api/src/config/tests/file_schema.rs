//! The schema of the file against the reader: what the reader accepts fits, and so do the shipped
//! examples.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{GOOD, edited};
use crate::config::{file_schema, read, written_objects};

static SCHEMA: LazyLock<Value> = LazyLock::new(file_schema);

thread_local! {
    /// A file of many objects has the same few patterns many thousand times.
    static PATTERNS: RefCell<HashMap<String, Regex>> = RefCell::default();
}

/// Where a text does not fit the schema: the paths, each with the keyword that it breaks.
fn misfits(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for object in written_objects(text).unwrap() {
        compare(&SCHEMA, object.value(), object.kind(), &mut found);
    }
    found
}

/// Panics if the text does not fit the schema.
pub(super) fn assert_fits(text: &str) {
    let found = misfits(text);
    assert!(found.is_empty(), "{found:#?} in\n{text}");
}

/// Compares a value with the keywords of a schema. A keyword that it does not know is a panic, so
/// none is ignored.
fn compare(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let Some(keywords) = schema.as_object() else {
        if schema == false {
            found.push(format!("{path}: additionalProperties"));
        }
        return;
    };
    for (keyword, argument) in keywords {
        let limit = argument.as_f64().unwrap_or_default();
        let number = value.as_f64();
        let length = value.as_str().map(|text| text.chars().count() as f64);
        let entries = value.as_array().map(|list| list.len() as f64);
        let members = value.as_object().map(|object| object.len() as f64);
        let fits = match keyword.as_str() {
            "$schema" | "$comment" | "title" | "description" | "default" | "format" | "then" => {
                true
            }
            "type" if argument.is_array() => argument
                .as_array()
                .unwrap()
                .iter()
                .any(|name| is_of_type(value, name)),
            "type" => is_of_type(value, argument),
            "enum" => argument.as_array().unwrap().contains(value),
            "const" => argument == value,
            "minimum" => number.is_none_or(|number| number >= limit),
            "maximum" => number.is_none_or(|number| number <= limit),
            "minLength" => length.is_none_or(|length| length >= limit),
            "maxLength" => length.is_none_or(|length| length <= limit),
            "minItems" => entries.is_none_or(|entries| entries >= limit),
            "maxItems" => entries.is_none_or(|entries| entries <= limit),
            "maxProperties" => members.is_none_or(|members| members <= limit),
            "pattern" => value
                .as_str()
                .is_none_or(|text| is_match(argument.as_str().unwrap(), text)),
            "required" => value.as_object().is_none_or(|object| {
                let mut names = argument.as_array().unwrap().iter();
                names.all(|name| object.contains_key(name.as_str().unwrap()))
            }),
            "properties" | "additionalProperties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    let known = schema["properties"].get(name);
                    let below = match (keyword == "properties", known) {
                        (true, Some(known)) => known,
                        (false, None) => argument,
                        _ => continue,
                    };
                    compare(below, member, &format!("{path}.{name}"), found);
                }
                true
            }
            "items" => {
                for (index, entry) in value.as_array().into_iter().flatten().enumerate() {
                    compare(argument, entry, &format!("{path}[{index}]"), found);
                }
                true
            }
            "allOf" => {
                for part in argument.as_array().unwrap() {
                    compare(part, value, path, found);
                }
                true
            }
            "if" => {
                let mut unmet = Vec::new();
                compare(argument, value, path, &mut unmet);
                if unmet.is_empty() {
                    compare(&schema["then"], value, path, found);
                }
                true
            }
            other => panic!("no test knows the keyword {other}"),
        };
        if !fits {
            found.push(format!("{path}: {keyword}"));
        }
    }
}

fn is_match(pattern: &str, text: &str) -> bool {
    PATTERNS.with_borrow_mut(|patterns| {
        let compiled = patterns.entry(pattern.to_owned());
        compiled
            .or_insert_with(|| Regex::new(pattern).unwrap())
            .is_match(text)
    })
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        other => panic!("no test knows the type {other}"),
    }
}

/// The configuration files below a folder of examples.
fn configuration_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(configuration_files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
            && std::fs::read_to_string(&path)
                .unwrap()
                .contains("\nkind: ServerConfiguration\n")
        {
            files.push(path);
        }
    }
    files
}

#[test]
fn the_shipped_examples_fit() {
    let files = configuration_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"));
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(read(&text).is_ok(), "{}", file.display());
        assert_fits(&text);
        let line = "# yaml-language-server: $schema=https://raw.githubusercontent.com/keyferry/\
            keyferry/main/docs/reference/keyferry-config.schema.json\n";
        assert!(
            text.starts_with(line),
            "{} begins with {line}",
            file.display()
        );
    }
}

/// Each edit of the good file breaks one keyword.
#[test]
fn mistakes_do_not_fit() {
    const SERVER: &str = "hubName: hub\n";
    const TARGET: &str = "  audience: https://prod.example.com\n";
    const ACCESS: &str = "  namespace: tenant-a\nspec:\n  targetClusterRef:\n    name: prod\n";
    let server = |added: &str| edited(SERVER, &format!("{SERVER}{added}\n"));
    let target = |added: &str| edited(TARGET, &format!("{TARGET}  {added}\n"));
    let cases = [
        (edited(SERVER, ""), "ServerConfiguration: required"),
        (
            edited(SERVER, "hubName: Hub\n"),
            "ServerConfiguration.hubName: pattern",
        ),
        (
            edited(SERVER, "hubName: yes\n"),
            "ServerConfiguration.hubName: type",
        ),
        (
            server("hubNam: hub"),
            "ServerConfiguration.hubNam: additionalProperties",
        ),
        (
            server("callerAudience: a b"),
            "ServerConfiguration.callerAudience: pattern",
        ),
        (
            server(&format!("callerAudience: {}", "a".repeat(257))),
            "ServerConfiguration.callerAudience: maxLength",
        ),
        (
            server("objects: Files"),
            "ServerConfiguration.objects: enum",
        ),
        (
            server("maxStaleAuthorization: 1.5h"),
            "ServerConfiguration.maxStaleAuthorization: pattern",
        ),
        (
            server("hub: {endpoints: ['http://a']}"),
            "ServerConfiguration.hub.endpoints[0]: pattern",
        ),
        (server("hub: [a]"), "ServerConfiguration.hub: type"),
        (
            server("metrics: {authentication: Basic}"),
            "ServerConfiguration.metrics.authentication: enum",
        ),
        (
            server("audit: {maxSize: 0}"),
            "ServerConfiguration.audit.maxSize: minimum",
        ),
        (
            server("inputs: {requestsPerSecond: 100001}"),
            "ServerConfiguration.inputs.requestsPerSecond: maximum",
        ),
        (
            server("metadata: {labels: {}}"),
            "ServerConfiguration.metadata.labels: additionalProperties",
        ),
        (
            server("externalIssuers: [{url: 'https://a', audience: a}]"),
            "ServerConfiguration.externalIssuers[0]: required",
        ),
        (
            GOOD.replacen("config.keyferry.dev/v1alpha1", "config.keyferry.dev/v1", 1),
            "ServerConfiguration.apiVersion: const",
        ),
        (
            GOOD.replacen("discovery:\n", "discovery:\n  publicURL: https://a\n", 1),
            "ServerConfiguration.discovery.publicURL: additionalProperties",
        ),
        (
            GOOD.replacen("kind: TargetCluster", "kind: Target", 1),
            "Target.kind: enum",
        ),
        (edited(TARGET, ""), "TargetCluster.spec: required"),
        (
            edited(
                "  name: prod\nspec:\n  address",
                "  name: prod\n  namespace: a\nspec:\n  address",
            ),
            "TargetCluster.metadata.namespace: additionalProperties",
        ),
        (
            edited(
                "address: https://prod.example.com:6443",
                "address: http://prod.example.com",
            ),
            "TargetCluster.spec.address: pattern",
        ),
        (
            target("tokenLifetime: {max: 1d}"),
            "TargetCluster.spec.tokenLifetime.max: pattern",
        ),
        (
            edited(
                "serviceAccounts: [reconciler, deployer]",
                "serviceAccounts: []",
            ),
            "TargetCluster.spec.allow[0].serviceAccounts: minItems",
        ),
        (
            edited("deliveries: [HTTP, ArgoCDSecret]", "deliveries: [Flux]"),
            "TargetCluster.spec.allow[0].deliveries[0]: enum",
        ),
        (
            edited(ACCESS, &ACCESS.replace("  namespace: tenant-a\n", "")),
            "TargetAccess.metadata: required",
        ),
        (
            edited(
                ACCESS,
                &ACCESS.replace("    name", "    namespace: a\n    name"),
            ),
            "TargetAccess.spec.targetClusterRef.namespace: additionalProperties",
        ),
        (
            edited("type: HTTP", "type: KubeConfigSecret"),
            "TargetAccess.spec.deliveries[0].type: enum",
        ),
        (
            edited("type: HTTP", "type: HTTP\n      objectName: a"),
            "TargetAccess.spec.deliveries[0].objectName: additionalProperties",
        ),
        (
            edited("probe: Report", "probe: Require"),
            "TargetAccess.spec.probe: enum",
        ),
    ];
    for (text, misfit) in cases {
        assert!(read(&text).is_err(), "{misfit}: the reader accepts\n{text}");
        assert_eq!(misfits(&text), [misfit]);
    }
}
