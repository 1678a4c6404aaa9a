//! Finds the AuthenticationConfiguration in what people have: a ConfigMap, a Secret, a machine
//! configuration of Talos, an object of Cluster API, a cloud-init file, values of a chart.
//!
//! No kind is known by its fields. Every text and every object inside the documents is looked at,
//! so a kind that is new here works too. A text may be base64, or a document with another one
//! inside.

mod inner_lines;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_go_formats::json::Json;
use keyferry_go_formats::yaml;
use keyferry_kube_authn::config::MAX_BYTES;
use regex::Regex;

pub(crate) use self::inner_lines::InnerLines;

/// The kind that is looked for.
const KIND: &str = "AuthenticationConfiguration";
/// How many documents may be inside each other.
const MAX_DEPTH: usize = 4;
/// The most files that are returned.
const MAX_FILES: usize = 32;
/// The most documents of one file that are read.
const MAX_DOCUMENTS: usize = 64;

/// An AuthenticationConfiguration, alone or inside another document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InnerFile {
    pub(crate) bytes: Vec<u8>,
    /// Where it is, if it is inside another document.
    pub(crate) inside: Option<Inside>,
}

/// The place of a file inside another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inside {
    /// The place for people, like `data.config.yaml of ConfigMap oidc`.
    pub(crate) location: String,
    /// The lines of the outer file that it is written in.
    pub(crate) lines: InnerLines,
    /// Whether the document is for K3s or RKE2.
    pub(crate) is_rancher: bool,
}

/// The file holds more than one AuthenticationConfiguration, and the command takes one.
#[derive(Debug, thiserror::Error)]
#[error(
    "reading {}: it holds several AuthenticationConfigurations, {}; fix: give one of them in a file \
     of its own", path.display(), locations.join(" and ")
)]
pub(crate) struct SeveralFilesError {
    path: PathBuf,
    locations: Vec<String>,
}

/// Returns the only file, or what was given if there is none inside.
///
/// # Errors
/// [`SeveralFilesError`].
pub(crate) fn only(bytes: &[u8], path: &Path) -> Result<InnerFile, SeveralFilesError> {
    let mut found = find(bytes);
    if found.len() > 1 {
        let places = found
            .into_iter()
            .filter_map(|file| file.inside)
            .map(|inside| inside.location)
            .collect();
        return Err(SeveralFilesError {
            path: path.to_owned(),
            locations: places,
        });
    }
    Ok(found.pop().unwrap_or_else(|| InnerFile {
        bytes: bytes.to_owned(),
        inside: None,
    }))
}

/// Returns every AuthenticationConfiguration of a file: what was given, if it is one or if none is
/// inside.
pub(crate) fn find(bytes: &[u8]) -> Vec<InnerFile> {
    let whole = || {
        vec![InnerFile {
            bytes: bytes.to_owned(),
            inside: None,
        }]
    };
    let Some(text) = std::str::from_utf8(bytes).ok() else {
        return whole();
    };
    if bytes.len() > MAX_BYTES || is_one(text) {
        return whole();
    }
    let mut search = Search {
        inner_files: Vec::new(),
    };
    search.text(text, &InnerLines::outer(), "", 0);
    if search.inner_files.is_empty() {
        whole()
    } else {
        search.inner_files
    }
}

/// Says what a file is that is no AuthenticationConfiguration, and what to lint instead.
pub(crate) fn fix_for_other_file(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let value = yaml::read(text.as_bytes()).ok()?.value;
    let Json::Object(members) = &value else {
        return None;
    };
    let kind = text_of(&value, "kind").unwrap_or_default();
    if kind == KIND || (kind.is_empty() && value.member("jwt").is_some()) {
        return None;
    }
    if let Some(flag) = flag_of_kind(kind) {
        return Some(format!(
            "this is the file of {flag}; give the file of --authentication-config"
        ));
    }
    if let Some(path) = named_file(&value) {
        return Some(format!(
            "this is {}, which names the file {path}; give that file",
            described(&value)
        ));
    }
    if value.member("keys").is_some() || value.member("jwks_uri").is_some() {
        return Some(
            "this is a document of an issuer; give the file of --authentication-config, and this \
             one to verify --jwks if it has keys"
                .to_owned(),
        );
    }
    if text_of(&value, "apiVersion").is_some_and(|version| version.contains("keyferry.dev/")) {
        return Some(
            "this is a file of Keyferry; keyferry serve --check checks it, and lint the file of \
             --authentication-config"
                .to_owned(),
        );
    }
    let entries = ["data", "stringData"]
        .into_iter()
        .filter_map(|name| value.member(name))
        .flat_map(Json::members)
        .map(|(name, _)| name.as_str())
        .take(8)
        .collect::<Vec<_>>()
        .join(", ");
    let holds = if entries.is_empty() {
        String::new()
    } else {
        format!(", with {entries}")
    };
    let named = !kind.is_empty() || !members.is_empty();
    named.then(|| {
        format!(
            "this is {}{holds}, and no {KIND} is inside; give the file of --authentication-config",
            described(&value)
        )
    })
}

/// The flag of kube-apiserver that takes a file of another kind.
fn flag_of_kind(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "AuthorizationConfiguration" => {
            "--authorization-config, which says who may do what and not who somebody is"
        }
        "EncryptionConfiguration" => "--encryption-provider-config",
        "AdmissionConfiguration" => "--admission-control-config-file",
        "EgressSelectorConfiguration" => "--egress-selector-config-file",
        "TracingConfiguration" => "--tracing-config-file",
        "Policy" => "--audit-policy-file",
        _ => return None,
    })
}

/// The path that a text gives to the flag, as an argument or as a field.
static NAMED_FILE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"authentication-config["']?\s*[:=]\s*["']?([^\s"',]+)"#).ok());

/// Finds the path that a document gives to `--authentication-config`: in a text, as a key with a
/// path, or as kubeadm's `name` and `value`.
fn named_file(value: &Json) -> Option<&str> {
    const FLAG: &str = "authentication-config";
    match value {
        Json::Text(text) => {
            let named = NAMED_FILE.as_ref()?.captures(text)?;
            Some(named.get(1)?.as_str())
        }
        Json::List(items) => items.iter().find_map(named_file),
        Json::Object(members) => {
            if text_of(value, "name") == Some(FLAG) {
                return text_of(value, "value");
            }
            members.iter().find_map(|(name, member)| match member {
                Json::Text(path) if name == FLAG => Some(path.as_str()),
                other => named_file(other),
            })
        }
        _ => None,
    }
}

/// Names a document: its kind and its name.
fn described(value: &Json) -> String {
    let name = value.member("metadata").and_then(|metadata| {
        let name = text_of(metadata, "name")?;
        Some(match text_of(metadata, "namespace") {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        })
    });
    let kind = match text_of(value, "kind") {
        Some(kind) => format!("a {kind}"),
        None if value.member("machine").is_some() => "a machine configuration of Talos".to_owned(),
        None if value.member("kube-apiserver-arg").is_some() => {
            "a configuration of K3s or RKE2".to_owned()
        }
        None if value.member("write_files").is_some() => "a cloud-init file".to_owned(),
        None => "a file without a kind".to_owned(),
    };
    match name {
        Some(name) => format!("{kind} {name}"),
        None => kind,
    }
}

fn text_of<'a>(value: &'a Json, name: &str) -> Option<&'a str> {
    match value.member(name) {
        Some(Json::Text(text)) => Some(text),
        _ => None,
    }
}

/// The kind as the field of a document, in YAML or JSON.
static KIND_FIELD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?m)(^|[{,\s])["']?kind["']?\s*:\s*["']?AuthenticationConfiguration\b"#).ok()
});
/// The same at the start of a line: the kind of the document itself.
static KIND_OF_DOCUMENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?m)^["']?kind["']?\s*:\s*["']?AuthenticationConfiguration\b"#).ok()
});

fn mentions_one(text: &str) -> bool {
    KIND_FIELD.as_ref().is_some_and(|kind| kind.is_match(text))
}

/// Whether a text is an AuthenticationConfiguration itself: its first document is one, or cannot be
/// read and names the kind at the start of a line.
fn is_one(text: &str) -> bool {
    match yaml::read(text.as_bytes()) {
        Ok(document) => text_of(&document.value, "kind") == Some(KIND),
        Err(_) => {
            let first = documents(text).into_iter().next();
            let names = KIND_OF_DOCUMENT.as_ref();
            first.is_some_and(|(_, first)| names.is_some_and(|kind| kind.is_match(first)))
        }
    }
}

/// Returns each document of a stream, with the number of lines before it.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut first, mut offset) = (0, 0, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let end = line.trim_end();
        if end == "---" || line.starts_with("--- ") {
            documents.extend(text.get(start..offset).map(|document| (first, document)));
            (start, first) = (offset + line.len(), index + 1);
        }
        offset += line.len();
    }
    documents.extend(text.get(start..).map(|document| (first, document)));
    documents.retain(|(_, document)| !document.trim().is_empty());
    documents.truncate(MAX_DOCUMENTS);
    documents
}

struct Search {
    inner_files: Vec<InnerFile>,
}

/// A document that is searched.
struct SearchedDocument<'a> {
    text: &'a str,
    read: &'a yaml::Document,
    lines: InnerLines,
    /// The document for people, with the documents around it.
    name: String,
    is_rancher: bool,
    depth: usize,
}

impl SearchedDocument<'_> {
    /// Names a place in the document for people.
    fn describe_place(&self, path: &str) -> String {
        format!("{path} of {}", self.name)
    }
}

impl Search {
    /// Searches each document of a text.
    fn text(&mut self, text: &str, lines: &InnerLines, around: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        for (number, (before, document)) in documents(text).into_iter().enumerate() {
            let Ok(read) = yaml::read(document.as_bytes()) else {
                continue;
            };
            let described = described(&read.value);
            let name = if around.is_empty() {
                described
            } else {
                format!("{described}, {around}")
            };
            let is_rancher = ["rancher/k3s", "rancher/rke2", "RKE2", "KThrees"]
                .iter()
                .any(|sign| document.contains(sign));
            let document = SearchedDocument {
                text: document,
                read: &read,
                lines: lines.within(InnerLines::after(before, 0)),
                name,
                is_rancher,
                depth,
            };
            if text_of(&read.value, "kind") == Some(KIND) {
                let around = if around.is_empty() {
                    "of the file"
                } else {
                    around
                };
                let place = format!("document {} {around}", number + 1);
                self.push(&document, document.text.into(), InnerLines::outer(), place);
            } else {
                self.value(&document, &read.value, "", "");
            }
        }
    }

    /// Searches a value. `path` names its position, and `key` is its name in its object.
    fn value(&mut self, document: &SearchedDocument<'_>, value: &Json, path: &str, key: &str) {
        if self.inner_files.len() >= MAX_FILES {
            return;
        }
        match value {
            Json::Object(_) if !path.is_empty() && text_of(value, "kind") == Some(KIND) => {
                let (bytes, lines) =
                    inner_lines::of_object(document.text, document.read, path, value);
                self.push(document, bytes, lines, document.describe_place(path));
            }
            Json::Object(members) => {
                for (name, member) in members {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    self.value(document, member, &path, name);
                }
            }
            Json::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(document, item, &format!("{path}[{index}]"), key);
                }
            }
            Json::Text(text) => self.inner_text(document, text, path, key),
            _ => {}
        }
    }

    fn inner_text(&mut self, document: &SearchedDocument<'_>, text: &str, path: &str, key: &str) {
        // kubectl keeps a copy of the object in this annotation.
        if key == "kubectl.kubernetes.io/last-applied-configuration" {
            return;
        }
        let (text, lines) = match decoded(text) {
            Some(decoded) => {
                let line = inner_lines::line_of(document.read, path);
                (decoded, InnerLines::on(line))
            }
            None if mentions_one(text) => (
                text.to_owned(),
                inner_lines::of_text(document.text, document.read, path, text),
            ),
            None => return,
        };
        if is_one(&text) {
            self.push(
                document,
                text.into_bytes(),
                lines,
                document.describe_place(path),
            );
        } else {
            let lines = document.lines.within(lines);
            let around = format!("in {path} of {}", document.name);
            self.text(&text, &lines, &around, document.depth + 1);
        }
    }

    fn push(
        &mut self,
        document: &SearchedDocument<'_>,
        bytes: Vec<u8>,
        lines: InnerLines,
        place: String,
    ) {
        self.inner_files.push(InnerFile {
            bytes,
            inside: Some(Inside {
                location: place,
                lines: document.lines.within(lines),
                is_rancher: document.is_rancher,
            }),
        });
    }
}

/// Returns the text that is written in base64, if it mentions the kind.
fn decoded(text: &str) -> Option<String> {
    let text: String = text.split_ascii_whitespace().collect();
    if text.len() < 40
        || !text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
    {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(text).ok()?).ok()?;
    mentions_one(&decoded).then_some(decoded)
}

#[cfg(test)]
mod tests;
