//! The fields of an AuthenticationConfiguration. Absent and empty are the same, except for fields
//! of type `Option`.

/// The kind AuthenticationConfiguration of `apiserver.config.k8s.io`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthenticationConfiguration {
    /// `jwt`: the JWT authenticators, in order.
    pub jwt: Vec<JwtAuthenticator>,
    /// `anonymous`, from 1.31: how anonymous requests are treated.
    pub anonymous: Option<Anonymous>,
}

/// The settings for anonymous requests, `anonymous`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anonymous {
    /// `enabled`: whether anonymous requests are allowed.
    pub enabled: bool,
    /// `conditions`: the paths to which they are limited.
    pub conditions: Vec<AnonymousCondition>,
}

/// One path for anonymous requests, `anonymous.conditions[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnonymousCondition {
    /// `path`, compared byte by byte.
    pub path: String,
}

/// One JWT authenticator, `jwt[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JwtAuthenticator {
    /// `issuer`: the issuer whose tokens it accepts.
    pub issuer: Issuer,
    /// `claimValidationRules`: rules that the claims must satisfy.
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    /// `claimMappings`: how claims are mapped to a user.
    pub claim_mappings: ClaimMappings,
    /// `userValidationRules`: rules that the mapped user must satisfy.
    pub user_validation_rules: Vec<UserValidationRule>,
}

/// The issuer of an authenticator, `jwt[].issuer`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Issuer {
    /// `url`, the `iss` of its tokens.
    pub url: String,
    /// `discoveryURL`, if the discovery document is not at the default place.
    pub discovery_url: String,
    /// `certificateAuthority`, PEM.
    pub certificate_authority: String,
    /// `audiences`, one of which a token must have.
    pub audiences: Vec<String>,
    /// `audienceMatchPolicy`, for several audiences.
    pub audience_match_policy: String,
    /// `egressSelectorType`, from 1.34.
    pub egress_selector_type: String,
}

/// One rule on claims, `jwt[].claimValidationRules[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimValidationRule {
    /// `claim`, the name of a required claim.
    pub claim: String,
    /// `requiredValue`, the value of that claim.
    pub required_value: String,
    /// `expression`, CEL over `claims`.
    pub expression: String,
    /// `message`, the error if the expression is false.
    pub message: String,
}

/// The mappings to a user, `jwt[].claimMappings`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimMappings {
    /// `username`, the source of the user name.
    pub username: PrefixedClaimOrExpression,
    /// `groups`, the source of the groups.
    pub groups: PrefixedClaimOrExpression,
    /// `uid`, the source of the UID.
    pub uid: ClaimOrExpression,
    /// `extra`, the sources of extra values.
    pub extra: Vec<ExtraMapping>,
}

/// The source of `username` or `groups`: a claim with a prefix, or an expression.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixedClaimOrExpression {
    /// `claim`, the name of the mapped claim.
    pub claim: String,
    /// `prefix`; an absent one differs from an empty one.
    pub prefix: Option<String>,
    /// `expression`, CEL over `claims`.
    pub expression: String,
}

/// The source of `uid`: a claim or an expression.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimOrExpression {
    /// `claim`, the name of the mapped claim.
    pub claim: String,
    /// `expression`, CEL over `claims`.
    pub expression: String,
}

/// The source of one extra value, `extra[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtraMapping {
    /// `key`, the key of the extra value.
    pub key: String,
    /// `valueExpression`, CEL over `claims`.
    pub value_expression: String,
}

/// One rule on the mapped user, `jwt[].userValidationRules[]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserValidationRule {
    /// `expression`, CEL over `user`.
    pub expression: String,
    /// `message`, the error if the expression is false.
    pub message: String,
}
