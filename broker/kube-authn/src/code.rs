//! Every reason that this crate gives, under a stable name.

use serde::Serialize;

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident => $fix:literal,)*) => {
        /// A reason, in PascalCase. The doc comment of each says the cause; [`Code::fix`] says
        /// what to do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Code {
            $($(#[doc = $doc])* $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name, as reports print it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The cause, in a sentence.
            #[must_use]
            pub fn cause(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),*).trim_ascii(),)* }
            }

            /// What to do about it.
            #[must_use]
            pub fn fix(self) -> &'static str {
                match self { $(Self::$name => $fix,)* }
            }
        }

        impl std::fmt::Display for Code {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

codes! {
    /// The file is empty.
    EmptyFile => "replace the file atomically: write a new file and rename it over the old one",
    /// The file starts with a brace but is not JSON.
    NotJson => "fix the JSON at the position in the message",
    /// The file is not YAML as the apiserver's library reads it.
    NotYaml => "fix the YAML at the position in the message",
    /// The file has no `kind`.
    KindMissing => "write `kind: AuthenticationConfiguration`",
    /// The file has no `apiVersion`.
    ApiVersionMissing => "write `apiVersion: apiserver.config.k8s.io/v1beta1`, or v1 from \
        Kubernetes 1.34",
    /// The `apiVersion` has more than one slash.
    ApiVersionMalformed => "write `apiVersion: apiserver.config.k8s.io/v1beta1`, or v1 from \
        Kubernetes 1.34",
    /// The target's release does not support this kind in this version.
    KindNotRegistered => "use a version that the target's release supports: v1beta1 from 1.30, v1 \
        from 1.34",
    /// A field has a value of another type, like a number instead of a string.
    WrongFieldType => "put the value in quotes, or write a value of the field's type",
    /// The target's release does not know a field; names are case-sensitive.
    UnknownField => "correct the name, or remove the field",
    /// A field is given twice.
    DuplicateField => "keep one of the two",
    /// The file has more than one YAML document; the target reads only the first.
    SecondDocument => "merge the documents into one `jwt` list",

    /// There are more than 64 authenticators; nothing else was checked.
    TooManyAuthenticators => "keep at most 64 entries under jwt",
    /// A required URL is missing.
    UrlMissing => "write the issuer's URL exactly as in the iss of its tokens",
    /// A URL cannot be parsed.
    UrlNotParsed => "write an absolute https URL",
    /// A URL is not https.
    UrlNotHttps => "serve the issuer over https; discoveryURL can name another address for the \
        discovery document",
    /// A URL contains a username or a password.
    UrlHasUser => "remove the part before the @",
    /// A URL contains a query.
    UrlHasQuery => "remove the part after the question mark",
    /// A URL contains a fragment.
    UrlHasFragment => "remove the part after the hash sign",
    /// The target uses this issuer for its own ServiceAccount tokens.
    IssuerIsTargets => "change the issuer of one of the two clusters, or use a managed issuer \
        (`issuer: Keyferry`)",
    /// Two authenticators have the same issuer URL.
    DuplicateIssuer => "merge the two entries; an issuer can have only one",
    /// Two authenticators have the same discovery URL.
    DuplicateDiscoveryUrl => "give each entry its own discoveryURL",
    /// The discovery URL is the issuer URL.
    DiscoveryUrlIsIssuer => "remove discoveryURL",
    /// There is no audience.
    AudiencesMissing => "write one audience, the target's own",
    /// An audience is empty.
    AudienceEmpty => "remove the empty audience",
    /// An audience is given twice.
    DuplicateAudience => "keep one of the two",
    /// `audienceMatchPolicy` does not fit the number of audiences.
    MatchPolicyWrong => "write MatchAny for several audiences; omit the field for one",
    /// certificateAuthority contains something other than PEM certificates, or a broken
    /// certificate.
    AuthorityNotCertificates => "write the CA certificates as PEM and nothing else",
    /// The egress selector is neither `controlplane` nor `cluster`.
    EgressSelectorUnknown => "write controlplane or cluster, or remove the field",
    /// Both a claim and an expression are given.
    ClaimAndExpression => "keep one of the two",
    /// Neither a claim nor an expression is given.
    ClaimOrExpressionMissing => "write one of the two",
    /// A rule by claim has a message.
    MessageWithClaim => "remove the message, or write the rule as an expression",
    /// The same rule is given twice.
    DuplicateRule => "keep one of the two",
    /// A rule by expression has a required value.
    RequiredValueWithExpression => "compare the value in the expression",
    /// An expression does not compile.
    ExpressionNotCompiled => "fix the expression at the position that the message marks; where the \
        type is `any`, `dyn(...)` helps",
    /// A rule's expression does not return a bool.
    ExpressionNotBool => "compare with a value, like `claims.x == true`",
    /// A rule or value has no expression.
    ExpressionMissing => "write the expression",
    /// A prefix is given with an expression.
    PrefixWithExpression => "add the prefix in the expression",
    /// A claim is mapped without a prefix.
    PrefixMissing => "write the prefix, like `prefix: \"hub:\"`",
    /// An extra key is empty.
    ExtraKeyMissing => "write a key like example.org/tenant",
    /// An extra key is not a domain followed by a path.
    ExtraKeyMalformed => "write a key like example.org/tenant",
    /// An extra key has capital letters.
    ExtraKeyNotLowercase => "write the key in lower case",
    /// An extra key is under k8s.io or kubernetes.io.
    ExtraKeyReserved => "use your own domain",
    /// An extra key is given twice.
    DuplicateExtraKey => "keep one of the two",
    /// The username uses `claims.email`, but no expression checks `claims.email_verified`.
    EmailVerifiedUnused => "add the rule `claims.?email_verified.orValue(true) == true`",
    /// `anonymous` has conditions but is not enabled.
    ConditionsWithoutAnonymous => "set anonymous.enabled to true, or remove the conditions",

    /// The token starts with a brace, so it is not a compact JWT and this authenticator skips it.
    NotCompact => "send the token in compact form: three parts joined by dots",
    /// The token does not have three parts.
    NotThreeParts => "send a complete signed JWT",
    /// The token's payload is not base64url.
    PayloadNotBase64 => "send the token as it was issued",
    /// The token's payload is not a JSON object, or its `iss` is not a string.
    PayloadNotJson => "send the token as it was issued",
    /// The token has another issuer than this authenticator.
    IssuerDiffers => "compare issuer.url with the token's iss, byte for byte; a trailing slash \
        counts",
    /// The token is not a compact JWS, or its header is malformed.
    MalformedJwt => "send the token as it was issued",
    /// The token's `alg` is not one of RS, ES and PS with 256, 384 or 512.
    AlgorithmUnsupported => "have the issuer sign with RS256 or ES256",
    /// No published key with the token's `kid` verifies the signature.
    SignatureInvalid => "compare the token's kid with the published key set; a target keeps an old \
        key set until its cache expires or its file changes",
    /// The issuer's key set cannot be read; one unusual key makes the whole set unreadable.
    KeySetUndecodable => "publish only RSA and EC keys, without x5u and without broken x5c",
    /// A registered claim has the wrong type.
    ClaimsMalformed => "have the issuer write aud as a string or a list, exp, iat and nbf as \
        numbers, and the others as strings",
    /// `_claim_names` names no source, or a source that is not in `_claim_sources`.
    ClaimSourceMissing => "have the issuer omit _claim_names",
    /// None of the token's audiences is one that the target accepts.
    AudienceDiffers => "make issuer.audiences at the target equal to the TargetCluster's audience; \
        the message shows both",
    /// The token has expired, or has no `exp`.
    TokenExpired => "request a new token, and compare the clocks: a target allows no leeway",
    /// The token's `nbf` is more than a minute in the future.
    TokenNotYetValid => "compare the clocks of the issuer and the target",
    /// The claims for distributed groups are malformed.
    DistributedClaimsMalformed => "have the issuer put the groups into the token",
    /// The claim that names the user is missing.
    UsernameClaimMissing => "map a claim that the tokens have, like sub",
    /// The claim that names the user is not a string.
    UsernameClaimNotString => "map a claim that is a string",
    /// The token says that its email is not verified.
    EmailNotVerified => "verify the address at the issuer, or map another claim",
    /// The token's `email_verified` is not a bool.
    EmailVerifiedNotBool => "have the issuer write true or false, without quotes",
    /// The groups claim is neither a string nor a list of strings.
    GroupsClaimMalformed => "map a claim that is a string or a list of strings",
    /// The claim that gives the UID is missing.
    UidClaimMissing => "map a claim that the tokens have",
    /// The claim that gives the UID is not a string.
    UidClaimNotString => "map a claim that is a string",
    /// A claim contains a number that is too large.
    ClaimsNotConvertible => "have the issuer omit numbers above 1e308",
    /// The username expression fails.
    UsernameExpressionFailed => "guard optional claims with has() or .?claim.orValue()",
    /// The username expression does not return a string.
    UsernameNotString => "make the expression return a string; a null claim is not a string",
    /// The username expression returns an empty string.
    UsernameEmpty => "make sure that the result is never empty, for example with a prefix",
    /// The groups expression fails.
    GroupsExpressionFailed => "guard optional claims with has() or .?claim.orValue()",
    /// The groups expression returns neither a string nor a list of strings.
    GroupsNotStrings => "make the expression return a string or a list of strings",
    /// The UID expression fails.
    UidExpressionFailed => "guard optional claims with has() or .?claim.orValue()",
    /// The UID expression does not return a string.
    UidNotString => "make the expression return a string",
    /// An extra's expression fails.
    ExtraExpressionFailed => "guard optional claims with has() or .?claim.orValue()",
    /// An extra's expression returns neither a string nor a list of strings.
    ExtraNotStrings => "make the expression return a string or a list of strings",
    /// A required claim is missing.
    RequiredClaimMissing => "have the issuer add the claim, or remove the rule",
    /// A required claim is not a string.
    RequiredClaimNotString => "write the rule as an expression; claim and requiredValue compare \
        strings only",
    /// A required claim has another value.
    RequiredClaimDiffers => "compare the claim with requiredValue, byte for byte",
    /// The expression of a claim rule fails; the target evaluates all of them before any result
    /// counts.
    ClaimRuleFailed => "guard optional claims with has() or .?claim.orValue()",
    /// A claim rule's expression is false.
    ClaimRuleFalse => "compare the rule with the token's claims; the rule works as written",
    /// A user rule's expression fails.
    UserRuleFailed => "fix the rule; it can use only username, uid, groups and extra",
    /// A user rule's expression is false.
    UserRuleFalse => "compare the rule with the mapped user; the rule works as written",
    /// The target refuses the configuration: it keeps the previous one, or does not start.
    ConfigurationRefused => "fix the errors of the configuration",

    /// The file or token is larger than the limit of this tool.
    TooLarge => "test it at the target",
    /// The file or token nests deeper than the limit of this tool.
    TooDeep => "test it at the target",
    /// The apiserver's result for this file is random, or a crash.
    UnusualYaml => "write plain block YAML: maps, lists, quoted strings",
    /// Different releases of Go parse this URL differently.
    UnusualUrl => "write a plain https URL with a host name and at most one port",
    /// Libraries read this certificate or key differently.
    UnusualKey => "publish plain RSA and EC public keys",
    /// An expression uses a feature whose result cannot be predicted here.
    ExpressionUndetermined => "test it at the target, or write a simpler expression",
    /// The target would fetch the groups from another server.
    NeedsNetwork => "have the issuer put the groups into the token",
    /// The issuer's discovery document or key set could not be read from here, or a target could
    /// not use it.
    IssuerNotRead => "check the address and the cause in the message; the target may use another \
        network",
    /// The target's release is newer than every release that is known here.
    NewerRelease => "test it at the target, or use a newer Keyferry that knows the release",

    /// A prefix is empty, so the issuer can name any user or group, including system ones.
    EmptyPrefix => "write the hub's prefix, like `hub:`",
    /// A prefix starts with `system:`, so tokens can name the target's own users or groups.
    SystemPrefix => "write the hub's prefix, like `hub:`",
    /// The expression reads the email by index, so the apiserver does not require `email_verified`.
    EmailByIndex => "write claims.email, and check claims.email_verified",
    /// No rule limits the lifetime of a token.
    NoLifetimeBound => "add the rule `claims.exp - claims.iat <= 3600`",
    /// An expression returns system:masters for every token.
    ConstantSystemMasters => "use RBAC to grant rights to a group with a prefix",
    /// An expression contains system:masters, and may return it.
    NamesSystemMasters => "use RBAC to grant rights to a group with a prefix",
    /// Arithmetic between a number claim and a literal has another result before 1.34.
    ArithmeticNotPortable => "wrap the claim: `int(claims.n) + 1`",
    /// `in claims` and `size(claims)` fail from 1.34 on.
    ClaimsAsMapNotPortable => "write `has(claims.x)`",
    /// An escaped name like `kubernetes__dot__io` below the first level does not work before 1.34.
    EscapeNotPortable => "write an index: `claims[\"kubernetes.io\"]`",
    /// A line of the batch is not a valid case.
    NotACase => "write one JSON object per line: minor, config, now, and token or serviceAccount",
    /// The file has several issuers; while one is unreachable, the target does not load a changed
    /// file.
    ManyIssuers => "keep every issuer reachable",
    /// The file accepts more than one audience.
    ManyAudiences => "write one audience that only this target accepts",
    /// No rule requires a token to have only one audience, so another recipient of the token can
    /// use it here.
    NoAudienceCount => "add the rule `claims.aud.size() == 1`",

    /// The object that the diagnosis starts from does not exist, or you may not read it.
    StartUnread => "check the kind, the name and the namespace, and your right to get it on the \
        hub",
    /// The access has a client certificate for the hub itself, and no token whose path could be
    /// checked.
    CertificateOfTheHub => "check the rights of its user on the hub: kubectl auth can-i --list \
        --as USER",
    /// The kubeconfig has parts that its reader ignores or refuses, or it has no address or token.
    KubeconfigUnusable => "write one cluster, one user with an inline token, one context and \
        certificate-authority-data",
    /// Flux cannot use this reference as it is written.
    FluxReferenceUnusable => "write provider generic, address, ca.crt, audiences and \
        serviceAccountName into the ConfigMap",
    /// The target is not a listed TargetCluster, and a tenant may have written it, so no token is
    /// sent there.
    TargetNotListed => "compare it with the TargetCluster; add --config FILE if a file lists the \
        targets; use --allow-unlisted-target only if you trust the target",
    /// Flux runs without its feature gate for object-level workload identity.
    FluxGateOff => "start Flux's controllers with \
        --feature-gates=ObjectLevelWorkloadIdentity=true, or use Flux 2.10",
    /// The token cannot be read as a JWT.
    TokenUnreadable => "put the token alone in its file, as it was issued",
    /// No server answers at the URL of the discovery document.
    DiscoveryUnreachable => "publish the document where the target's apiserver can reach it, and \
        allow the connection",
    /// The given CA did not sign the certificate of the discovery document's server.
    DiscoveryUntrusted => "write the CA of that server into issuer.certificateAuthority",
    /// The server gives the discovery document only to authenticated clients; a target's apiserver
    /// is anonymous.
    DiscoveryForbidden => "allow anonymous reads, or set discoveryURL to Keyferry, which publishes \
        the document",
    /// The server has no discovery document at this path.
    DiscoveryNotServed => "compare discoveryURL with the publicURL of Keyferry, byte for byte",
    /// The server's answer is not a discovery document.
    DiscoveryMalformed => "serve the issuer's JSON document, with issuer and jwks_uri",
    /// The discovery document names another issuer than the token.
    DiscoveryIssuerDiffers => "make the document's issuer, issuer.url and the token's iss equal, \
        byte for byte; a trailing slash counts",
    /// No server answers at the jwks_uri of the discovery document.
    KeysUnreachable => "set jwks_uri to an address that the target's apiserver can reach",
    /// The given CA did not sign the certificate of the server at jwks_uri.
    KeysUntrusted => "serve the keys with a certificate of the same CA as the discovery document",
    /// The server does not return the keys at jwks_uri to anonymous clients.
    KeysNotServed => "serve the key set at jwks_uri, anonymously, with status 200",
    /// The jwks_uri of the discovery document is not https, so an attacker on the network can
    /// replace the keys.
    KeysNotHttps => "have the issuer write an https address as jwks_uri, or have Keyferry publish \
        its keys",
    /// The key set is empty, so the target refuses every token of the issuer.
    KeysEmpty => "have the issuer publish its keys before the target trusts it",
    /// No server answers at the target's address.
    TargetUnreachable => "check the target's address, and allow the connection to it",
    /// The given CA did not sign the target's certificate.
    TargetUntrusted => "use the CA of the target's apiserver",
    /// The target does not use the given file.
    ConfigurationNotActive => "start kube-apiserver with --authentication-config and this file, \
        or check its log for why the file was not loaded; the target loads a changed file within \
        about 10 s",
    /// The target has not fetched the issuer's discovery document, so it refuses every token of
    /// that issuer.
    AuthenticatorNotInitialized => "from the target's own network, read the discovery document \
        with the configured CA; the target retries every 10 s",
    /// The target cannot read the issuer's keys.
    TargetCannotReadKeys => "from the target's own network, read jwks_uri with the configured CA",
    /// The target refuses the token and does not say why.
    TokenRefused => "add --auth-config with the target's file, or --target-kubeconfig of a user \
        who may create tokenreviews there",
    /// The user may not impersonate the user that --as or the object names.
    ImpersonationDenied => "on the target, let the user impersonate that user, as keyferry trust \
        TARGET --flux-service-account prints it for a ServiceAccount, or omit serviceAccountName",
    /// A proxy drops the Impersonate headers, or one of them, so the target answers as another user
    /// than the impersonated one.
    ImpersonationIgnored => "make every proxy on the way to the target pass all Impersonate \
        headers; without them, the target applies the rights of the wrong user",
    /// The target knows the user, but the user has no rights there.
    NoRights => "on the target, bind a Role or ClusterRole to a subject of kind User with exactly \
        this name; kind ServiceAccount names the target's own accounts",
    /// The target denies the user the flow-control probe, so client-go throttles itself.
    FlowControlForbidden => "on the target, grant the verb head on the nonResourceURL /livez/ping",
    /// Flux itself reports that the object is not ready.
    FluxNotReady => "read Flux's message; if every earlier step succeeds, check the object's \
        source, its manifests and its own settings",
}

impl Code {
    /// Whether it says that something is not decided here, rather than that something is wrong.
    #[must_use]
    pub fn is_undetermined(self) -> bool {
        let undecided = [
            Self::TooLarge,
            Self::TooDeep,
            Self::UnusualYaml,
            Self::UnusualUrl,
            Self::UnusualKey,
            Self::ExpressionUndetermined,
            Self::NeedsNetwork,
            Self::IssuerNotRead,
            Self::NewerRelease,
            Self::NotACase,
        ];
        undecided.contains(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_says_its_cause_and_its_fix() {
        for code in Code::ALL {
            assert!(
                code.cause().ends_with('.') && !code.fix().is_empty() && !code.fix().ends_with('.'),
                "{code}"
            );
        }
    }
}
