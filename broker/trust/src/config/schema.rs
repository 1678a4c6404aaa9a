//! The fields of an AuthenticationConfiguration. Absent and empty are one, but for the fields that
//! are optional here.

/// `apiserver.config.k8s.io` AuthenticationConfiguration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthenticationConfiguration {
    /// `jwt`.
    pub jwt: Vec<JwtAuthenticator>,
    /// `anonymous`, from 1.31.
    pub anonymous: Option<Anonymous>,
}

/// `anonymous`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anonymous {
    /// `enabled`.
    pub enabled: bool,
    /// `conditions`.
    pub conditions: Vec<AnonymousCondition>,
}

/// `anonymous.conditions[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnonymousCondition {
    /// `path`, compared as it stands.
    pub path: String,
}

/// `jwt[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JwtAuthenticator {
    /// `issuer`.
    pub issuer: Issuer,
    /// `claimValidationRules`.
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    /// `claimMappings`.
    pub claim_mappings: ClaimMappings,
    /// `userValidationRules`.
    pub user_validation_rules: Vec<UserValidationRule>,
}

/// `jwt[].issuer`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Issuer {
    /// `url`.
    pub url: String,
    /// `discoveryURL`.
    pub discovery_url: String,
    /// `certificateAuthority`, PEM.
    pub certificate_authority: String,
    /// `audiences`.
    pub audiences: Vec<String>,
    /// `audienceMatchPolicy`.
    pub audience_match_policy: String,
    /// `egressSelectorType`, from 1.34.
    pub egress_selector_type: String,
}

/// `jwt[].claimValidationRules[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimValidationRule {
    /// `claim`.
    pub claim: String,
    /// `requiredValue`.
    pub required_value: String,
    /// `expression`, CEL over `claims`.
    pub expression: String,
    /// `message`.
    pub message: String,
}

/// `jwt[].claimMappings`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimMappings {
    /// `username`.
    pub username: PrefixedClaimOrExpression,
    /// `groups`.
    pub groups: PrefixedClaimOrExpression,
    /// `uid`.
    pub uid: ClaimOrExpression,
    /// `extra`.
    pub extra: Vec<ExtraMapping>,
}

/// `username` and `groups`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixedClaimOrExpression {
    /// `claim`.
    pub claim: String,
    /// `prefix`; absent is not empty.
    pub prefix: Option<String>,
    /// `expression`, CEL over `claims`.
    pub expression: String,
}

/// `uid`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimOrExpression {
    /// `claim`.
    pub claim: String,
    /// `expression`, CEL over `claims`.
    pub expression: String,
}

/// `extra[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtraMapping {
    /// `key`.
    pub key: String,
    /// `valueExpression`, CEL over `claims`.
    pub value_expression: String,
}

/// `jwt[].userValidationRules[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserValidationRule {
    /// `expression`, CEL over `user`.
    pub expression: String,
    /// `message`.
    pub message: String,
}
