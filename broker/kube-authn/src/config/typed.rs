//! Decodes JSON to the typed object as the strict codec does: case-sensitive, the first wrong type,
//! every unknown field.

use keyferry_go_formats::json::Json;
use keyferry_go_formats::quote::quote;

use super::schema::{
    Anonymous, AnonymousCondition, AuthenticationConfiguration, ClaimMappings, ClaimOrExpression,
    ClaimValidationRule, ExtraMapping, Issuer, JwtAuthenticator, PrefixedClaimOrExpression,
    UserValidationRule,
};
use super::{ApiVersion, FieldFault, LoadFault, Refusal, field_names};
use crate::{Code, Minor};

/// A decoded object, and the strict errors about it.
pub(super) struct Typed {
    pub(super) configuration: AuthenticationConfiguration,
    pub(super) strict: Vec<FieldFault>,
}

/// The number of strict errors that the apiserver keeps.
const MAX_STRICT: usize = 100;

/// Decodes a document whose version and kind are known.
pub(super) fn read_typed(
    value: &Json,
    version: ApiVersion,
    minor: Minor,
) -> Result<Typed, LoadFault> {
    let mut decoder = Decoder {
        version,
        minor,
        path: String::new(),
        fields: Vec::new(),
        mismatch: None,
        strict: Vec::new(),
    };
    let configuration = decoder.decode_configuration(value);
    match decoder.mismatch {
        Some(message) => Err(Refusal::exact(Code::WrongFieldType, message).into()),
        None => Ok(Typed {
            configuration,
            strict: decoder.strict,
        }),
    }
}

struct Decoder {
    version: ApiVersion,
    minor: Minor,
    /// The current path with indexes, as strict errors name it.
    path: String,
    /// The names of the enclosing fields, without indexes, as type errors name them.
    fields: Vec<&'static str>,
    mismatch: Option<String>,
    strict: Vec<FieldFault>,
}

impl Decoder {
    /// Calls `field` for each member with a known name. A null object counts as empty.
    fn decode_object(
        &mut self,
        value: &Json,
        go_type: &'static str,
        names: &[&'static str],
        mut field: impl FnMut(&mut Self, &str, &Json),
    ) {
        let members = match value {
            Json::Null => return,
            Json::Object(members) => members,
            other => return self.refuse_type(other, &format!("{}.{go_type}", self.version.name())),
        };
        let mut seen: Vec<&str> = Vec::new();
        for (key, member) in members {
            let Some(name) = names.iter().find(|name| *name == key) else {
                self.add_complaint(Code::UnknownField, "unknown field", key);
                continue;
            };
            if seen.contains(name) {
                self.add_complaint(Code::DuplicateField, "duplicate field", key);
            }
            seen.push(name);
            let length = self.path.len();
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(name);
            self.fields.push(name);
            let before = self.mismatch.is_some();
            field(self, name, member);
            if !before && let Some(message) = &mut self.mismatch {
                // Only the innermost struct fills in its name; outer ones find no placeholder left.
                *message = message.replace("\u{0}", go_type);
            }
            self.fields.pop();
            self.path.truncate(length);
        }
    }

    fn add_complaint(&mut self, code: Code, what: &str, key: &str) {
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        let message = format!("{what} {}", quote(&path));
        if self.strict.len() < MAX_STRICT
            && !self.strict.iter().any(|known| known.message == message)
        {
            let fix = (code == Code::UnknownField)
                .then(|| field_names::unknown_field_fix(&self.path, key, self.minor))
                .flatten();
            self.strict.push(FieldFault {
                fix,
                ..FieldFault::new(code, path, message)
            });
        }
    }

    fn refuse_type(&mut self, value: &Json, target: &str) {
        if self.mismatch.is_none() {
            let field = self.fields.join(".");
            self.mismatch = Some(format!(
                "json: cannot unmarshal {} into Go struct field \u{0}.{field} of type {target}",
                value.kind()
            ));
        }
    }

    fn decode_text(&mut self, value: &Json, into: &mut String) {
        self.named_text(value, into, "string");
    }

    fn named_text(&mut self, value: &Json, into: &mut String, target: &str) {
        match value {
            Json::Null => {}
            Json::Text(text) => into.clone_from(text),
            other => self.refuse_type(other, target),
        }
    }

    fn optional_text(&mut self, value: &Json) -> Option<String> {
        let mut text = String::new();
        self.decode_text(value, &mut text);
        (*value != Json::Null).then_some(text)
    }

    fn decode_list<T>(
        &mut self,
        value: &Json,
        target: &str,
        mut item: impl FnMut(&mut Self, &Json) -> T,
    ) -> Vec<T> {
        let items = match value {
            Json::Null => return Vec::new(),
            Json::List(items) => items,
            other => {
                self.refuse_type(other, &format!("[]{target}"));
                return Vec::new();
            }
        };
        let length = self.path.len();
        let mut out = Vec::with_capacity(items.len());
        for (index, value) in items.iter().enumerate() {
            self.path.push_str(&format!("[{index}]"));
            out.push(item(self, value));
            self.path.truncate(length);
        }
        out
    }

    fn list_of<T>(
        &mut self,
        value: &Json,
        go_type: &str,
        item: impl FnMut(&mut Self, &Json) -> T,
    ) -> Vec<T> {
        let target = format!("{}.{go_type}", self.version.name());
        self.decode_list(value, &target, item)
    }

    fn decode_configuration(&mut self, value: &Json) -> AuthenticationConfiguration {
        let mut out = AuthenticationConfiguration::default();
        let names: &[&str] = if self.minor >= Minor::V1_31 {
            &["kind", "apiVersion", "jwt", "anonymous"]
        } else {
            &["kind", "apiVersion", "jwt"]
        };
        self.decode_object(
            value,
            "AuthenticationConfiguration",
            names,
            |decoder, name, value| match name {
                "jwt" => {
                    out.jwt = decoder.list_of(value, "JWTAuthenticator", Self::decode_authenticator)
                }
                "anonymous" => out.anonymous = decoder.decode_anonymous(value),
                _ => decoder.decode_text(value, &mut String::new()),
            },
        );
        out
    }

    fn decode_anonymous(&mut self, value: &Json) -> Option<Anonymous> {
        let mut out = Anonymous::default();
        self.decode_object(
            value,
            "AnonymousAuthConfig",
            &["enabled", "conditions"],
            |decoder, name, value| match (name, value) {
                ("conditions", _) => {
                    out.conditions =
                        decoder.list_of(value, "AnonymousAuthCondition", Self::decode_condition)
                }
                (_, Json::Null) => {}
                (_, Json::Bool(enabled)) => out.enabled = *enabled,
                (_, other) => decoder.refuse_type(other, "bool"),
            },
        );
        (*value != Json::Null).then_some(out)
    }

    fn decode_condition(&mut self, value: &Json) -> AnonymousCondition {
        let mut out = AnonymousCondition::default();
        self.decode_object(
            value,
            "AnonymousAuthCondition",
            &["path"],
            |decoder, _, value| decoder.decode_text(value, &mut out.path),
        );
        out
    }

    fn decode_authenticator(&mut self, value: &Json) -> JwtAuthenticator {
        let mut out = JwtAuthenticator::default();
        let names = [
            "issuer",
            "claimValidationRules",
            "claimMappings",
            "userValidationRules",
        ];
        self.decode_object(
            value,
            "JWTAuthenticator",
            &names,
            |decoder, name, value| match name {
                "issuer" => out.issuer = decoder.decode_issuer(value),
                "claimValidationRules" => {
                    out.claim_validation_rules =
                        decoder.list_of(value, "ClaimValidationRule", Self::claim_rule)
                }
                "claimMappings" => out.claim_mappings = decoder.decode_mappings(value),
                _ => {
                    out.user_validation_rules =
                        decoder.list_of(value, "UserValidationRule", Self::user_rule)
                }
            },
        );
        out
    }

    fn decode_issuer(&mut self, value: &Json) -> Issuer {
        let mut out = Issuer::default();
        let all = [
            "url",
            "discoveryURL",
            "certificateAuthority",
            "audiences",
            "audienceMatchPolicy",
            "egressSelectorType",
        ];
        let names = if self.minor >= Minor::V1_34 {
            &all[..]
        } else {
            &all[..5]
        };
        let package = self.version.name();
        self.decode_object(value, "Issuer", names, |decoder, name, value| match name {
            "url" => decoder.decode_text(value, &mut out.url),
            "discoveryURL" => decoder.decode_text(value, &mut out.discovery_url),
            "certificateAuthority" => decoder.decode_text(value, &mut out.certificate_authority),
            "audiences" => {
                out.audiences = decoder.decode_list(value, "string", |decoder, value| {
                    let mut text = String::new();
                    decoder.decode_text(value, &mut text);
                    text
                });
            }
            "audienceMatchPolicy" => {
                decoder.named_text(
                    value,
                    &mut out.audience_match_policy,
                    &format!("{package}.AudienceMatchPolicyType"),
                );
            }
            _ => decoder.named_text(
                value,
                &mut out.egress_selector_type,
                &format!("{package}.EgressSelectorType"),
            ),
        });
        out
    }

    fn claim_rule(&mut self, value: &Json) -> ClaimValidationRule {
        let mut out = ClaimValidationRule::default();
        let names = ["claim", "requiredValue", "expression", "message"];
        self.decode_object(
            value,
            "ClaimValidationRule",
            &names,
            |decoder, name, value| match name {
                "claim" => decoder.decode_text(value, &mut out.claim),
                "requiredValue" => decoder.decode_text(value, &mut out.required_value),
                "expression" => decoder.decode_text(value, &mut out.expression),
                _ => decoder.decode_text(value, &mut out.message),
            },
        );
        out
    }

    fn decode_mappings(&mut self, value: &Json) -> ClaimMappings {
        let mut out = ClaimMappings::default();
        self.decode_object(
            value,
            "ClaimMappings",
            &["username", "groups", "uid", "extra"],
            |decoder, name, value| match name {
                "username" => out.username = decoder.decode_prefixed(value),
                "groups" => out.groups = decoder.decode_prefixed(value),
                "uid" => out.uid = decoder.decode_unprefixed(value),
                _ => out.extra = decoder.list_of(value, "ExtraMapping", Self::decode_extra),
            },
        );
        out
    }

    fn decode_prefixed(&mut self, value: &Json) -> PrefixedClaimOrExpression {
        let mut out = PrefixedClaimOrExpression::default();
        self.decode_object(
            value,
            "PrefixedClaimOrExpression",
            &["claim", "prefix", "expression"],
            |decoder, name, value| match name {
                "claim" => decoder.decode_text(value, &mut out.claim),
                "prefix" => out.prefix = decoder.optional_text(value),
                _ => decoder.decode_text(value, &mut out.expression),
            },
        );
        out
    }

    fn decode_unprefixed(&mut self, value: &Json) -> ClaimOrExpression {
        let mut out = ClaimOrExpression::default();
        self.decode_object(
            value,
            "ClaimOrExpression",
            &["claim", "expression"],
            |decoder, name, value| match name {
                "claim" => decoder.decode_text(value, &mut out.claim),
                _ => decoder.decode_text(value, &mut out.expression),
            },
        );
        out
    }

    fn decode_extra(&mut self, value: &Json) -> ExtraMapping {
        let mut out = ExtraMapping::default();
        self.decode_object(
            value,
            "ExtraMapping",
            &["key", "valueExpression"],
            |decoder, name, value| match name {
                "key" => decoder.decode_text(value, &mut out.key),
                _ => decoder.decode_text(value, &mut out.value_expression),
            },
        );
        out
    }

    fn user_rule(&mut self, value: &Json) -> UserValidationRule {
        let mut out = UserValidationRule::default();
        self.decode_object(
            value,
            "UserValidationRule",
            &["expression", "message"],
            |decoder, name, value| match name {
                "expression" => decoder.decode_text(value, &mut out.expression),
                _ => decoder.decode_text(value, &mut out.message),
            },
        );
        out
    }
}
