//! Facts about loading and validation: sections 1.2 and 1.3 of the notes.

use super::Expected::{Load, Refused, User};
use super::{Fact, claiming, entry, sound, with};
use crate::differential::node::Node;

pub(super) fn facts() -> Vec<Fact> {
    let mut facts = vec![
        Fact::everywhere("a_sound_case", sound(), User("hub:jane")),
        Fact::everywhere(
            "anonymous_is_typed",
            with("anonymous.enabled", Node::raw("1")),
            Load(
                "json: cannot unmarshal number into Go struct field \
                 AnonymousAuthConfig.anonymous.enabled of type bool",
            ),
        ),
        Fact::everywhere(
            "unknown_field",
            with("jwt.0.issuer.audiencez", Node::raw("[]")),
            Load("strict decoding error: unknown field \"jwt[0].issuer.audiencez\""),
        ),
        Fact::everywhere(
            "field_names_have_a_case",
            with("jwt.0.ClaimMappings", Node::raw("{}")),
            Load("unknown field \"jwt[0].ClaimMappings\""),
        ),
        Fact::everywhere(
            "wrong_type",
            with("jwt.0.claimMappings.username.prefix", Node::raw("5")),
            Load(
                "json: cannot unmarshal number into Go struct field \
                 PrefixedClaimOrExpression.jwt.claimMappings.username.prefix of type string",
            ),
        ),
        Fact::skewed(
            "v1_since_1_34",
            with("apiVersion", Node::text("apiserver.config.k8s.io/v1")),
            Load(
                "no kind \"AuthenticationConfiguration\" is registered for \
                 version \"apiserver.config.k8s.io/v1\"",
            ),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "kind_is_needed",
            with("kind", Node::raw("null")),
            Load("Object 'Kind' is missing in "),
        ),
        Fact::everywhere(
            "null_prefix_is_none",
            with("jwt.0.claimMappings.username.prefix", Node::raw("null")),
            Refused(
                "prefix is required when claim is set. It can be set to an empty string to disable \
                 prefixing",
            ),
        ),
        Fact::everywhere(
            "prefix_without_a_mapping",
            with("jwt.0.claimMappings.groups", Node::raw("{prefix: \"x\"}")),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "https_only",
            with("jwt.0.issuer.url", Node::text("http://hub.test")),
            Refused(
                "jwt[0].issuer.url: Invalid value: \"http://hub.test\": URL scheme must be https",
            ),
        ),
        Fact::everywhere(
            "no_user_in_a_url",
            with("jwt.0.issuer.url", Node::text("https://u:p@hub.test")),
            Refused("URL must not contain a username or password"),
        ),
        Fact::skewed(
            "url_is_needed",
            with("jwt.0.issuer.url", Node::text("")),
            Refused("jwt[0].issuer.url: Required value: URL is required"),
            Refused("jwt[0].issuer.url: Required value"),
        ),
        Fact::everywhere(
            "another_discovery_url",
            with(
                "jwt.0.issuer.discoveryURL",
                Node::text("https://hub.test//"),
            ),
            Refused("discoveryURL must be different from URL"),
        ),
        Fact::everywhere(
            "any_for_two_audiences",
            with("jwt.0.issuer.audiences", Node::texts(&["my-client", "b"])),
            Refused("audienceMatchPolicy must be MatchAny for multiple audiences"),
        ),
        Fact::everywhere(
            "an_audience_is_needed",
            with("jwt.0.issuer.audiences", Node::raw("[]")),
            Refused("at least one jwt[0].issuer.audiences is required"),
        ),
        Fact::everywhere(
            "authority_is_pem",
            with("jwt.0.issuer.certificateAuthority", Node::text("x")),
            Refused("data does not contain any valid RSA or ECDSA certificates"),
        ),
        Fact::everywhere(
            "claim_or_expression",
            with("jwt.0.claimValidationRules", Node::raw("[{}]")),
            Refused(
                "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
            ),
        ),
        Fact::everywhere(
            "rules_are_bool",
            with(
                "jwt.0.claimValidationRules",
                Node::raw("[{expression: claims.sub}]"),
            ),
            Refused("must evaluate to bool"),
        ),
        Fact::everywhere(
            "reserved_keys",
            with(
                "jwt.0.claimMappings.extra",
                Node::raw("[{key: a.k8s.io/x, valueExpression: \"'x'\"}]"),
            ),
            Refused("k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"),
        ),
        Fact::everywhere(
            "one_label_is_a_domain",
            with(
                "jwt.0.claimMappings.extra",
                Node::raw("[{key: single/x, valueExpression: \"'x'\"}]"),
            ),
            User("hub:jane"),
        ),
        Fact::everywhere(
            "email_needs_verification",
            with(
                "jwt.0.claimMappings.username",
                Node::raw("{expression: \"has(claims.email) ? claims.email : claims.sub\"}"),
            ),
            Refused("claims.email_verified must be used in"),
        ),
        Fact::everywhere(
            "email_by_index_escapes",
            with(
                "jwt.0.claimMappings.username",
                Node::raw("{expression: \"claims['sub'] + string('email' in claims.nested)\"}"),
            ),
            super::Expected::Rejected("no such key: nested"),
        ),
        Fact::everywhere(
            "conditions_need_enabled",
            with(
                "anonymous",
                Node::raw("{enabled: false, conditions: [{path: /livez}]}"),
            ),
            Refused("anonymous.conditions"),
        ),
        Fact::everywhere(
            "at_most_64",
            with("jwt", Node::List(vec![entry(); 65])),
            Refused("jwt: Too many: 65: must have at most 64 items"),
        ),
    ];
    let mut second = claiming("sub", "\"jane\"");
    second.config.after = "\n---\n{ not yaml".to_owned();
    facts.push(Fact::everywhere(
        "a_second_document_is_not_read",
        second,
        User("hub:jane"),
    ));
    let mut twice = sound();
    twice
        .config
        .tree
        .push("kind", Node::text("AuthenticationConfiguration"));
    facts.push(Fact::everywhere(
        "duplicate_keys",
        twice,
        Load("key \"kind\" already set in map"),
    ));
    let mut own = sound();
    own.disallowed_issuers = vec!["https://z.test".to_owned(), "https://hub.test".to_owned()];
    facts.push(Fact::everywhere(
        "the_own_issuer",
        own,
        Refused("URL must not overlap with disallowed issuers: [https://hub.test https://z.test]"),
    ));
    facts
}
