//! Constraints that several fields of the custom resources share: names, hosts, durations.
//!
//! A field takes them with `#[schemars(with = "…")]` for a type that has a schema, or with
//! `#[schemars(transform = …)]` for one of the functions below. The apiserver then refuses what the
//! reader in [`crate::config`] would refuse.

use std::borrow::Cow;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::name::{Namespace, ObjectName, TrustBundleName};
use crate::service_account::ServiceAccount;

/// An RFC 1123 label.
pub(crate) const LABEL_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// An RFC 1123 subdomain.
const SUBDOMAIN_PATTERN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Subdomains with colons between them.
const TRUST_BUNDLE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.:][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A label, a slash and a subdomain.
const LABEL_AND_SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?/\
    [a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A host name, an IPv4 address, or an IPv6 address in brackets. [`HOST_RULES`] check the
/// addresses.
const HOST_PATTERN: &str = concat!(
    r"([A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?",
    r"(\.[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*\.?",
    r"|\[(::|(::)?(0|[1-9A-Fa-f][0-9A-Fa-f]{0,3})(::?(0|[1-9A-Fa-f][0-9A-Fa-f]{0,3}))*(::)?)\])",
);
/// The host of an issuer. Unlike an address, it may have several spellings.
const ISSUER_HOST: &str = r"([A-Za-z0-9_]([-A-Za-z0-9._]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:]+\])";
/// A port from 1 to 65535, or none.
const PORT_PATTERN: &str = "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|\
    655[0-2][0-9]|6553[0-5]))?";
/// The path of a server's address. A path that ends in several slashes has a segment before them.
const SERVER_PATH: &str = r"((/[!$&-.0-;=A-\[\]_a-z|~]+)+/*|/)?";
/// The path of an issuer.
const ISSUER_PATH: &str = r#"(/[!"$->@-~]*)?"#;
/// Printable ASCII without what [`crate::audience::Audience`] refuses.
const AUDIENCE_PATTERN: &str = r"^[!#-&(-+\--\[\]-_a-~]+$";
/// An https origin. The reader also checks the host.
const ORIGIN: &str = r"^https://[^/?#@\s]+/?$";
/// A duration in hours, minutes and seconds.
pub(crate) const DURATION_PATTERN: &str = "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$";

/// Rules for the host of a URL that [`HOST_PATTERN`] matches, as CEL and message. A pattern alone cannot
/// count the groups of an IPv6 address.
const HOST_RULES: [(&str, &str); 3] = [
    (
        concat!(
            r"!self.matches(r'^[a-z0-9]+://\[') || (self.matches(r'^[^/]*//[^/]*::') ? ",
            r"!self.matches(r'^[^/]*//([^/]*::[^/]*::|\[:*[0-9A-Fa-f]+(:+[0-9A-Fa-f]+){6})') : ",
            r"self.matches(r'^[^/]*//\[([0-9A-Fa-f]+:){7}[0-9A-Fa-f]+\]'))",
        ),
        "the host in brackets is not an IPv6 address",
    ),
    (
        r"!self.matches(r'^[^/]*//[^/]*([:\[]0:0[:\]]|[:\[]0::|::0[:\]])')",
        "the host is an IPv6 address, but not in its shortest spelling",
    ),
    (
        concat!(
            r"!self.matches(r'^[^/]*//([^/:]*\.)?([0-9]+|0[xX][0-9A-Fa-f]*)\.?(:[0-9]+)?(/|$)') ",
            r"|| self.matches(r'^[^/]*//((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\.){3}",
            r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(:[0-9]+)?(/|$)')",
        ),
        "the host ends in a number and is not an IPv4 address in its plain spelling",
    ),
];

/// A validation rule: what CEL must hold, and the message if it does not.
pub(crate) fn validation_rule(cel: &str, message: &str) -> ValidationRule {
    ValidationRule {
        rule: cel.to_owned(),
        message: Some(message.to_owned()),
        ..ValidationRule::default()
    }
}

/// The names of the values that a field may have, for its `enum`.
pub(crate) fn choice_names<T>(choices: &'static [(&'static str, T)]) -> Vec<&'static str> {
    choices.iter().map(|(name, _)| *name).collect()
}

/// A field that has one of these names, and the name of its type's default if it is absent.
pub(crate) fn choices<T: Default + PartialEq>(
    choices: &'static [(&'static str, T)],
) -> impl FnMut(&mut Schema) {
    let default = choices.iter().find(|(_, value)| *value == T::default());
    let default = default.map(|(name, _)| *name);
    move |schema| {
        schema.insert("enum".to_owned(), json!(choice_names(choices)));
        schema.insert("default".to_owned(), json!(default));
    }
}

/// The URL of an apiserver: `https://host[:port][/path]`.
pub(crate) fn server_address(schema: &mut Schema) {
    let path = validation_rule(
        r"!self.matches(r'/\.{1,2}(/|$)')",
        "the path holds a segment . or .., which clients read differently",
    );
    url(schema, "^https://", SERVER_PATH, vec![path]);
    schema.insert("minLength".to_owned(), json!(9));
}

/// The URL of a proxy: scheme, host and port.
pub(crate) fn proxy_address(schema: &mut Schema) {
    url(schema, "^(http|https|socks5)://", "/?", Vec::new());
}

fn url(schema: &mut Schema, start: &str, path: &str, mut rules: Vec<ValidationRule>) {
    rules.extend(
        HOST_RULES
            .iter()
            .map(|(cel, message)| validation_rule(cel, message)),
    );
    let pattern = [start, HOST_PATTERN, PORT_PATTERN, path, "$"].concat();
    schema.insert("maxLength".to_owned(), json!(2048));
    schema.insert("pattern".to_owned(), json!(pattern));
    schema.insert("x-kubernetes-validations".to_owned(), json!(rules));
}

/// An https origin, as [`crate::issuer::PublicUrl`] allows it.
pub(crate) fn origin(schema: &mut Schema) {
    schema.insert("pattern".to_owned(), json!(ORIGIN));
}

/// A list of https origins.
pub(crate) fn origins(schema: &mut Schema) {
    of_items(schema, "pattern", json!(ORIGIN));
}

/// An issuer that kube-apiserver can trust.
pub(crate) fn issuer(schema: &mut Schema) {
    let pattern = ["^https://", ISSUER_HOST, PORT_PATTERN, ISSUER_PATH, "$"].concat();
    schema.insert("minLength".to_owned(), json!(9));
    schema.insert("maxLength".to_owned(), json!(600));
    schema.insert("pattern".to_owned(), json!(pattern));
}

/// An audience, as [`crate::audience::Audience`] allows it.
pub(crate) fn audience(schema: &mut Schema) {
    schema.insert("minLength".to_owned(), json!(1));
    schema.insert("maxLength".to_owned(), json!(256));
    schema.insert("pattern".to_owned(), json!(AUDIENCE_PATTERN));
}

/// A token's lifetime: a duration from 10 minutes to 24 hours.
pub(crate) fn token_lifetime(schema: &mut Schema) {
    let rules = [validation_rule(
        "self != '' && duration(self) >= duration('10m') && duration(self) <= duration('24h')",
        "write a duration from 10m to 24h",
    )];
    schema.insert("maxLength".to_owned(), json!(16));
    schema.insert("pattern".to_owned(), json!(DURATION_PATTERN));
    schema.insert("x-kubernetes-validations".to_owned(), json!(rules));
}

/// A time in RFC 3339.
pub(crate) fn time(schema: &mut Schema) {
    schema.insert("format".to_owned(), json!("date-time"));
}

/// A list that one writer replaces as a whole.
pub(crate) fn atomic(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".to_owned(), json!("atomic"));
}

/// A list in which no entry occurs twice.
pub(crate) fn set(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".to_owned(), json!("set"));
}

/// A mapping of at most so many texts, each of at most so many characters.
pub(crate) fn texts_by_name(entries: usize, chars: usize) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("maxProperties".to_owned(), json!(entries));
        if let Some(Value::Object(value)) = schema.get_mut("additionalProperties") {
            value.insert("maxLength".to_owned(), json!(chars));
        }
    }
}

/// A list whose entries are identified by `key`.
fn map_by(schema: &mut Schema, key: &str) {
    schema.insert("x-kubernetes-list-type".to_owned(), json!("map"));
    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!([key]));
}

/// A list in which no two entries have the same `name`.
pub(crate) fn map_by_name(schema: &mut Schema) {
    map_by(schema, "name");
}

/// A list in which no two entries have the same `type`.
pub(crate) fn map_by_type(schema: &mut Schema) {
    map_by(schema, "type");
}

/// Sets one keyword of a list's entries.
pub(crate) fn of_items(schema: &mut Schema, keyword: &str, value: Value) {
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        items.insert(keyword.to_owned(), value);
    }
}

impl JsonSchema for Namespace {
    fn schema_name() -> Cow<'static, str> {
        "Namespace".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": 63, "pattern": LABEL_PATTERN })
    }
}

impl JsonSchema for ObjectName {
    fn schema_name() -> Cow<'static, str> {
        "ObjectName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": 253, "pattern": SUBDOMAIN_PATTERN })
    }
}

impl JsonSchema for TrustBundleName {
    fn schema_name() -> Cow<'static, str> {
        "TrustBundleName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": 253, "pattern": TRUST_BUNDLE })
    }
}

impl JsonSchema for ServiceAccount {
    fn schema_name() -> Cow<'static, str> {
        "ServiceAccount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A ServiceAccount as namespace/name.",
            "maxLength": 317,
            "pattern": LABEL_AND_SUBDOMAIN,
        })
    }
}
