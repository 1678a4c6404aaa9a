//! The apiserver's other kinds of configuration, which people give to it by mistake: its codec reads
//! them, strictly too, and only then finds that they are of another kind.

use keyferry_go_formats::json::Json;
use keyferry_go_formats::quote::quote;

use super::Refusal;
use crate::{Code, Minor};

/// A kind that the apiserver's scheme knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherKind {
    name: &'static str,
    fields: &'static [Field],
}

/// What a field contains.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Bool,
    Integer,
    /// A text like `3s`.
    Duration,
    Any,
    Object(&'static [Field]),
    List(&'static Self),
}

/// A field, with the first release that has it if that is not the oldest one.
type Field = (&'static str, Shape, Option<Minor>);

const ADMISSION_CONFIGURATION: OtherKind = OtherKind {
    name: "AdmissionConfiguration",
    fields: &[(
        "plugins",
        Shape::List(&Shape::Object(&[
            ("name", Shape::Text, None),
            ("path", Shape::Text, None),
            ("configuration", Shape::Any, None),
        ])),
        None,
    )],
};

const AUTHORIZATION_CONFIGURATION: OtherKind = OtherKind {
    name: "AuthorizationConfiguration",
    fields: &[(
        "authorizers",
        Shape::List(&Shape::Object(&[
            ("type", Shape::Text, None),
            ("name", Shape::Text, None),
            ("webhook", Shape::Object(WEBHOOK_FIELDS), None),
        ])),
        None,
    )],
};

const WEBHOOK_FIELDS: &[Field] = &[
    ("authorizedTTL", Shape::Duration, None),
    ("cacheAuthorizedRequests", Shape::Bool, Some(Minor::V1_34)),
    ("unauthorizedTTL", Shape::Duration, None),
    ("cacheUnauthorizedRequests", Shape::Bool, Some(Minor::V1_34)),
    ("timeout", Shape::Duration, None),
    ("subjectAccessReviewVersion", Shape::Text, None),
    (
        "matchConditionSubjectAccessReviewVersion",
        Shape::Text,
        None,
    ),
    ("failurePolicy", Shape::Text, None),
    (
        "connectionInfo",
        Shape::Object(&[
            ("type", Shape::Text, None),
            ("kubeConfigFile", Shape::Text, None),
        ]),
        None,
    ),
    (
        "matchConditions",
        Shape::List(&Shape::Object(&[("expression", Shape::Text, None)])),
        None,
    ),
];

const EGRESS_SELECTOR: OtherKind = OtherKind {
    name: "EgressSelectorConfiguration",
    fields: &[(
        "egressSelections",
        Shape::List(&Shape::Object(&[
            ("name", Shape::Text, None),
            ("connection", Shape::Object(CONNECTION_FIELDS), None),
        ])),
        None,
    )],
};

const CONNECTION_FIELDS: &[Field] = &[
    ("proxyProtocol", Shape::Text, None),
    (
        "transport",
        Shape::Object(&[
            (
                "tcp",
                Shape::Object(&[
                    ("url", Shape::Text, None),
                    ("tlsConfig", Shape::Object(TLS_FIELDS), None),
                ]),
                None,
            ),
            (
                "uds",
                Shape::Object(&[("udsName", Shape::Text, None)]),
                None,
            ),
        ]),
        None,
    ),
];

const TLS_FIELDS: &[Field] = &[
    ("caBundle", Shape::Text, None),
    ("clientKey", Shape::Text, None),
    ("clientCert", Shape::Text, None),
    ("tlsServerName", Shape::Text, Some(Minor::V1_36)),
];

const ENCRYPTION_CONFIGURATION: OtherKind = OtherKind {
    name: "EncryptionConfiguration",
    fields: &[(
        "resources",
        Shape::List(&Shape::Object(&[
            ("resources", Shape::List(&Shape::Text), None),
            (
                "providers",
                Shape::List(&Shape::Object(PROVIDER_FIELDS)),
                None,
            ),
        ])),
        None,
    )],
};

const PROVIDER_FIELDS: &[Field] = &[
    ("aesgcm", Shape::Object(KEY_FIELDS), None),
    ("aescbc", Shape::Object(KEY_FIELDS), None),
    ("secretbox", Shape::Object(KEY_FIELDS), None),
    ("identity", Shape::Object(&[]), None),
    (
        "kms",
        Shape::Object(&[
            ("apiVersion", Shape::Text, None),
            ("name", Shape::Text, None),
            ("cachesize", Shape::Integer, None),
            ("endpoint", Shape::Text, None),
            ("timeout", Shape::Duration, None),
        ]),
        None,
    ),
];

const KEY_FIELDS: &[Field] = &[(
    "keys",
    Shape::List(&Shape::Object(&[
        ("name", Shape::Text, None),
        ("secret", Shape::Text, None),
    ])),
    None,
)];

const TRACING_CONFIGURATION: OtherKind = OtherKind {
    name: "TracingConfiguration",
    fields: &[
        ("endpoint", Shape::Text, None),
        ("samplingRatePerMillion", Shape::Integer, None),
    ],
};

/// The kinds that the scheme knows, with their API versions and the first release that has them
/// there.
const KNOWN_KINDS: &[(&str, &str, OtherKind, Option<Minor>)] = &[
    (
        "apiserver.config.k8s.io/v1",
        "AdmissionConfiguration",
        ADMISSION_CONFIGURATION,
        None,
    ),
    (
        "apiserver.config.k8s.io/v1",
        "EncryptionConfiguration",
        ENCRYPTION_CONFIGURATION,
        None,
    ),
    (
        "apiserver.config.k8s.io/v1",
        "AuthorizationConfiguration",
        AUTHORIZATION_CONFIGURATION,
        Some(Minor::V1_32),
    ),
    (
        "apiserver.config.k8s.io/v1",
        "TracingConfiguration",
        TRACING_CONFIGURATION,
        Some(Minor::V1_34),
    ),
    (
        "apiserver.config.k8s.io/v1beta1",
        "AuthorizationConfiguration",
        AUTHORIZATION_CONFIGURATION,
        None,
    ),
    (
        "apiserver.config.k8s.io/v1beta1",
        "TracingConfiguration",
        TRACING_CONFIGURATION,
        None,
    ),
    (
        "apiserver.config.k8s.io/v1alpha1",
        "AuthorizationConfiguration",
        AUTHORIZATION_CONFIGURATION,
        None,
    ),
    (
        "apiserver.config.k8s.io/v1alpha1",
        "TracingConfiguration",
        TRACING_CONFIGURATION,
        None,
    ),
    (
        "apiserver.k8s.io/v1alpha1",
        "AdmissionConfiguration",
        ADMISSION_CONFIGURATION,
        None,
    ),
    (
        "apiserver.k8s.io/v1alpha1",
        "EgressSelectorConfiguration",
        EGRESS_SELECTOR,
        None,
    ),
    (
        "apiserver.k8s.io/v1beta1",
        "EgressSelectorConfiguration",
        EGRESS_SELECTOR,
        None,
    ),
    ("v1", "EncryptionConfig", ENCRYPTION_CONFIGURATION, None),
];

/// The number of strict errors that the apiserver keeps.
const MAX_STRICT: usize = 100;

/// Returns the kind of that name if the release knows it.
pub(super) fn find_kind(api_version: &str, kind: &str, minor: Minor) -> Option<OtherKind> {
    KNOWN_KINDS
        .iter()
        .find(|(version, name, _, since)| {
            *version == api_version && *name == kind && since.is_none_or(|since| minor >= since)
        })
        .map(|(_, _, found, _)| *found)
}

/// Returns the error about a file of that kind: its strict errors, or that it is of another kind.
/// `duplicates` is the error about keys that YAML has twice.
pub(super) fn refuse_kind(
    kind: OtherKind,
    value: &Json,
    duplicates: Option<&str>,
    minor: Minor,
) -> Refusal {
    let mut walk = Walk {
        minor,
        strict: duplicates.map(str::to_owned).into_iter().collect(),
        fits: true,
    };
    let type_meta = [
        ("kind", Shape::Text, None),
        ("apiVersion", Shape::Text, None),
    ];
    walk.walk_object(value, &[&type_meta, kind.fields].concat(), "");
    let message = if walk.strict.is_empty() {
        format!(
            "expected AuthenticationConfiguration, got *apiserver.{}",
            kind.name
        )
    } else {
        format!("strict decoding error: {}", walk.strict.join(", "))
    };
    if walk.fits {
        Refusal::exact(Code::OtherKind, message)
    } else {
        // The apiserver's text is about the value of a wrong type.
        Refusal::near(Code::OtherKind, message)
    }
}

struct Walk {
    minor: Minor,
    strict: Vec<String>,
    /// Whether every value has the type of its field.
    fits: bool,
}

impl Walk {
    fn walk_value(&mut self, value: &Json, shape: Shape, path: &str) {
        match (shape, value) {
            (_, Json::Null) | (Shape::Any, _) => {}
            (Shape::Object(fields), Json::Object(_)) => self.walk_object(value, fields, path),
            (Shape::List(item), Json::List(values)) => {
                for (index, value) in values.iter().enumerate() {
                    self.walk_value(value, *item, &format!("{path}[{index}]"));
                }
            }
            (Shape::Text, Json::Text(_)) | (Shape::Bool, Json::Bool(_)) => {}
            (Shape::Integer, Json::Number(digits)) if digits.parse::<i32>().is_ok() => {}
            (Shape::Duration, Json::Text(text)) => self.fits &= is_plain_duration(text),
            _ => self.fits = false,
        }
    }

    fn walk_object(&mut self, value: &Json, fields: &[Field], path: &str) {
        let mut member_names: Vec<&str> = Vec::new();
        self.fits &= matches!(value, Json::Object(_));
        for (key, member) in value.members() {
            let inner = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            let known = fields.iter().find(|(name, _, since)| {
                name == key && since.is_none_or(|since| self.minor >= since)
            });
            let Some((name, shape, _)) = known else {
                self.add_complaint("unknown field", &inner);
                continue;
            };
            if member_names.contains(name) {
                self.add_complaint("duplicate field", &inner);
            }
            member_names.push(name);
            self.walk_value(member, *shape, &inner);
        }
    }

    fn add_complaint(&mut self, what: &str, path: &str) {
        let message = format!("{what} {}", quote(path));
        if self.strict.len() < MAX_STRICT && !self.strict.contains(&message) {
            self.strict.push(message);
        }
    }
}

/// Whether Go surely parses a text as a duration: digits and one unit.
fn is_plain_duration(text: &str) -> bool {
    let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let digits = text.len() - unit.len();
    (1..10).contains(&digits) && matches!(unit, "ns" | "us" | "ms" | "s" | "m" | "h")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::config::{LoadFault, load_configuration};
    use crate::{Code, Minor};

    /// Recorded from k8s.io/apiserver v0.30.14, v0.32.13, v0.33.13, v0.34.9 and v0.37.2.
    const RECORDED: &[(Minor, &str, &str)] = &[
        (
            Minor::V1_30,
            "{apiVersion: apiserver.config.k8s.io/v1beta1, kind: AuthorizationConfiguration, \
             authorizers: [{type: Webhook, name: a, webhook: {timeout: 3s, \
             connectionInfo: {type: KubeConfigFile, kubeConfigFile: /a}}}]}",
            "expected AuthenticationConfiguration, got *apiserver.AuthorizationConfiguration",
        ),
        (
            Minor::V1_37,
            "{apiVersion: apiserver.config.k8s.io/v1beta1, kind: TracingConfiguration, jwt: []}",
            "strict decoding error: unknown field \"jwt\"",
        ),
        (
            Minor::V1_34,
            "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, endpoint: a}",
            "expected AuthenticationConfiguration, got *apiserver.TracingConfiguration",
        ),
        (
            Minor::V1_33,
            "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, jwt: [], \
             a: 1, plugins: [{name: a, configuration: {a: 1}, x: 1}]}",
            "strict decoding error: unknown field \"a\", unknown field \"jwt\", unknown field \
             \"plugins[0].x\"",
        ),
        (
            Minor::V1_30,
            "{apiVersion: v1, kind: EncryptionConfig, resources: [{resources: [a], providers: \
             [{identity: {}}, {kms: {cachesize: 3, timeout: 3s}}]}]}",
            "expected AuthenticationConfiguration, got *apiserver.EncryptionConfiguration",
        ),
        (
            Minor::V1_34,
            "{apiVersion: apiserver.k8s.io/v1beta1, kind: EgressSelectorConfiguration, \
             egressSelections: [{connection: {transport: {tcp: {tlsConfig: \
             {tlsServerName: a}}}}}]}",
            "strict decoding error: unknown field \
             \"egressSelections[0].connection.transport.tcp.tlsConfig.tlsServerName\"",
        ),
        (
            Minor::V1_37,
            "{apiVersion: apiserver.k8s.io/v1beta1, kind: EgressSelectorConfiguration, \
             egressSelections: [{connection: {transport: {tcp: {tlsConfig: \
             {tlsServerName: a}}}}}]}",
            "expected AuthenticationConfiguration, got *apiserver.EgressSelectorConfiguration",
        ),
    ];

    #[test]
    fn another_kind_of_the_apiserver_is_refused_in_its_words() {
        for (minor, flow, text) in RECORDED {
            // A file that begins with a brace would be JSON.
            let file = format!("# a comment\n{flow}\n");
            let Err(LoadFault::Refused(refusal)) = load_configuration(file.as_bytes(), *minor)
            else {
                panic!("{flow} loads");
            };
            assert_eq!(refusal.message, *text, "{minor}: {flow}");
            assert!(refusal.exact && refusal.code == Code::OtherKind, "{flow}");
        }
    }

    #[test]
    fn a_value_of_a_wrong_type_makes_the_text_inexact() {
        let file = "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthorizationConfiguration\n\
                    authorizers: [{webhook: {timeout: 3x}}]\n";
        let Err(LoadFault::Refused(refusal)) = load_configuration(file.as_bytes(), Minor::V1_33)
        else {
            panic!("it loads");
        };
        assert!(!refusal.exact, "{refusal:?}");
    }

    #[test]
    fn a_kind_of_a_later_release_is_not_registered() {
        let file = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
        let Err(LoadFault::Refused(refusal)) = load_configuration(file.as_bytes(), Minor::V1_33)
        else {
            panic!("it loads");
        };
        assert_eq!(refusal.code, Code::KindNotRegistered);
    }
}
