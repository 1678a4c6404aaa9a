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
    EmptyFile => "write the whole file at once, by renaming a finished one over it",
    /// The file starts with a brace but is not JSON.
    NotJson => "fix the JSON at the place the message names",
    /// The file is not YAML.
    NotYaml => "fix the YAML at the place the message names",
    /// The file has no `kind`.
    KindMissing => "write `kind: AuthenticationConfiguration`",
    /// The file has no `apiVersion`.
    ApiVersionMissing => "write `apiVersion: apiserver.config.k8s.io/v1beta1`, or v1 from \
        Kubernetes 1.34",
    /// The `apiVersion` has more than one slash.
    ApiVersionMalformed => "write `apiVersion: apiserver.config.k8s.io/v1beta1`, or v1 from \
        Kubernetes 1.34",
    /// The target's release does not know this kind in this version.
    KindNotRegistered => "use a version that the target's release knows: v1beta1 from 1.30, v1 \
        from 1.34",
    /// A field holds a value of another type, like a number where a string is wanted.
    WrongFieldType => "put the value in quotes, or give the type the field has",
    /// A field that the target's release does not know; names are case-sensitive.
    UnknownField => "correct the name, or remove the field",
    /// A field is given twice.
    DuplicateField => "keep one of the two",
    /// The file holds more than one YAML document, and all but the first are ignored.
    SecondDocument => "join the documents into one `jwt` list",

    /// There are more than 64 authenticators; nothing else was checked.
    TooManyAuthenticators => "keep at most 64 entries under jwt",
    /// A required URL is missing.
    UrlMissing => "write the issuer's URL, exactly as its tokens spell it in iss",
    /// A URL cannot be parsed.
    UrlNotParsed => "write an absolute https URL",
    /// A URL is not https.
    UrlNotHttps => "serve the issuer by https; its discovery document may be fetched from \
        discoveryURL",
    /// A URL holds a username or a password.
    UrlHasUser => "remove the part before the @",
    /// A URL holds a query.
    UrlHasQuery => "remove the part after the question mark",
    /// A URL holds a fragment.
    UrlHasFragment => "remove the part after the hash sign",
    /// The issuer is one that the target uses for its own ServiceAccount tokens.
    IssuerIsTargets => "one of the two clusters must change its issuer; Keyferry can publish one \
        of its own (issuer Keyferry)",
    /// Two authenticators have the same issuer URL.
    DuplicateIssuer => "join the two entries; one issuer has one entry",
    /// Two authenticators have the same discovery URL.
    DuplicateDiscoveryUrl => "give each entry its own discoveryURL",
    /// The discovery URL is the issuer URL.
    DiscoveryUrlIsIssuer => "remove discoveryURL",
    /// There is no audience.
    AudiencesMissing => "name one audience, the target's own",
    /// An audience is empty.
    AudienceEmpty => "remove the empty audience",
    /// An audience is given twice.
    DuplicateAudience => "keep one of the two",
    /// `audienceMatchPolicy` does not fit the number of audiences.
    MatchPolicyWrong => "write MatchAny for several audiences, nothing for one",
    /// The certificate authority is no PEM text with certificates, or one of them is broken.
    AuthorityNotCertificates => "give the CA certificates as PEM, nothing else",
    /// The egress selector is neither `controlplane` nor `cluster`.
    EgressSelectorUnknown => "write controlplane or cluster, or remove the field",
    /// Both a claim and an expression are given.
    ClaimAndExpression => "keep one of the two",
    /// Neither a claim nor an expression is given.
    ClaimOrExpressionMissing => "give one of the two",
    /// A rule by claim has a message.
    MessageWithClaim => "remove the message, or write the rule as an expression",
    /// The same rule is given twice.
    DuplicateRule => "keep one of the two",
    /// A rule by expression has a required value.
    RequiredValueWithExpression => "compare inside of the expression",
    /// An expression does not compile.
    ExpressionNotCompiled => "fix the expression at the place the message marks; `dyn(...)` helps \
        where the type is `any`",
    /// A rule's expression is not a bool.
    ExpressionNotBool => "compare with a value, like `claims.x == true`",
    /// A rule or value has no expression.
    ExpressionMissing => "write the expression",
    /// A prefix is given with an expression.
    PrefixWithExpression => "add the prefix inside of the expression",
    /// A claim is mapped without a prefix.
    PrefixMissing => "write the prefix, like `prefix: \"hub:\"`",
    /// An extra key is empty.
    ExtraKeyMissing => "write a key like example.org/tenant",
    /// An extra key is not a domain and a path.
    ExtraKeyMalformed => "write a key like example.org/tenant",
    /// An extra key has capital letters.
    ExtraKeyNotLowercase => "write the key in lower case",
    /// An extra key is under k8s.io or kubernetes.io.
    ExtraKeyReserved => "use a domain of your own",
    /// An extra key is given twice.
    DuplicateExtraKey => "keep one of the two",
    /// The username is made from `claims.email`, but nothing looks at `claims.email_verified`.
    EmailVerifiedUnused => "add the rule `claims.?email_verified.orValue(true) == true`",
    /// Conditions are given for anonymous requests that are not enabled.
    ConditionsWithoutAnonymous => "set anonymous.enabled to true, or remove the conditions",

    /// The token starts with a brace: it is no compact JWT, and this authenticator leaves it to
    /// others.
    NotCompact => "send the token in its compact form, three parts joined by dots",
    /// The token has not three parts.
    NotThreeParts => "send a signed JWT, whole",
    /// The token's payload is not base64url.
    PayloadNotBase64 => "send the token as it was issued",
    /// The token's payload is no JSON object, or its `iss` is no string.
    PayloadNotJson => "send the token as it was issued",
    /// The token is from another issuer than this authenticator's.
    IssuerDiffers => "compare issuer.url with the token's iss, byte by byte; a slash at the end \
        counts",
    /// The token is no JWS in compact form, or its header is broken.
    MalformedJwt => "send the token as it was issued",
    /// The token's `alg` is not one of RS, ES and PS with 256, 384 or 512.
    AlgorithmUnsupported => "have the issuer sign with RS256 or ES256",
    /// No key of the issuer's key set with the token's `kid` signed it.
    SignatureInvalid => "compare the token's kid with the published key set; a target keeps an old \
        set until its cache ends or its file changes",
    /// The issuer's key set cannot be read; one odd key spoils it whole.
    KeySetUndecodable => "publish only RSA and EC keys, without x5u and without broken x5c",
    /// A registered claim has a wrong type.
    ClaimsMalformed => "have the issuer write aud as string or list, exp, iat and nbf as numbers, \
        the others as strings",
    /// `_claim_names` names no source, or one that `_claim_sources` lacks.
    ClaimSourceMissing => "have the issuer leave out _claim_names",
    /// The token is for other audiences.
    AudienceDiffers => "make issuer.audiences at the target and the TargetCluster's audience one \
        text; which of the two is wrong, the message shows",
    /// The token has expired, or has no `exp`.
    TokenExpired => "request a new token; compare the clocks: a target gives no leeway",
    /// The token's `nbf` is more than a minute ahead.
    TokenNotYetValid => "compare the clocks of issuer and target",
    /// The claims that name distributed groups are broken.
    DistributedClaimsMalformed => "have the issuer put the groups into the token",
    /// The claim that names the user is missing.
    UsernameClaimMissing => "map a claim that the tokens have, like sub",
    /// The claim that names the user is no string.
    UsernameClaimNotString => "map a claim that is a string",
    /// The token says that its email is not verified.
    EmailNotVerified => "verify the address at the issuer, or map another claim",
    /// The token's `email_verified` is no bool.
    EmailVerifiedNotBool => "have the issuer write true or false, without quotes",
    /// The groups claim is no string and no list of strings.
    GroupsClaimMalformed => "map a claim that is a string or a list of strings",
    /// The claim that gives the UID is missing.
    UidClaimMissing => "map a claim that the tokens have",
    /// The claim that gives the UID is no string.
    UidClaimNotString => "map a claim that is a string",
    /// A claim holds a number that cannot be represented.
    ClaimsNotConvertible => "have the issuer leave out numbers beyond 1e308",
    /// The username expression fails.
    UsernameExpressionFailed => "guard optional claims with has() or .?claim.orValue()",
    /// The username expression gives no string.
    UsernameNotString => "make the expression a string; a claim that is null is none",
    /// The username expression gives an empty string.
    UsernameEmpty => "make the expression never empty, for example by a prefix",
    /// The groups expression fails.
    GroupsExpressionFailed => "guard optional claims with has() or .?claim.orValue()",
    /// The groups expression gives no string and no list of strings.
    GroupsNotStrings => "make the expression a string or a list of strings",
    /// The UID expression fails.
    UidExpressionFailed => "guard optional claims with has() or .?claim.orValue()",
    /// The UID expression gives no string.
    UidNotString => "make the expression a string",
    /// An extra's expression fails.
    ExtraExpressionFailed => "guard optional claims with has() or .?claim.orValue()",
    /// An extra's expression gives no string and no list of strings.
    ExtraNotStrings => "make the expression a string or a list of strings",
    /// A required claim is missing.
    RequiredClaimMissing => "have the issuer add the claim, or remove the rule",
    /// A required claim is no string.
    RequiredClaimNotString => "write the rule as an expression; claim and requiredValue compare \
        strings only",
    /// A required claim has another value.
    RequiredClaimDiffers => "compare the claim with requiredValue, byte by byte",
    /// A claim rule's expression fails; all are evaluated before any result counts.
    ClaimRuleFailed => "guard optional claims with has() or .?claim.orValue()",
    /// A claim rule's expression is false.
    ClaimRuleFalse => "the rule does what it was written for; compare it with the token's claims",
    /// A user rule's expression fails.
    UserRuleFailed => "fix the rule; it sees only username, uid, groups and extra",
    /// A user rule's expression is false.
    UserRuleFalse => "the rule does what it was written for; compare it with the mapped user",
    /// The configuration is refused, so that the target keeps the one before, or does not start.
    ConfigurationRefused => "fix the errors of the configuration",

    /// The file or token is larger than what is read here.
    TooLarge => "ask the target itself",
    /// It nests deeper than what is read here.
    TooDeep => "ask the target itself",
    /// It is YAML that readers disagree about: tags, merge keys, directives and the like.
    UnusualYaml => "write plain block YAML: maps, lists, quoted strings",
    /// It is a URL that releases of Go disagree about.
    UnusualUrl => "write a plain https URL with a name and at most one port",
    /// It is a certificate or key that libraries disagree about.
    UnusualKey => "publish plain RSA and EC public keys",
    /// An expression uses what is not decided here.
    ExpressionUndetermined => "ask the target itself, or write the expression more simply",
    /// The groups are at another place, which the target would ask.
    NeedsNetwork => "have the issuer put the groups into the token",
    /// The issuer's discovery document or key set could not be read from here, or is not what the
    /// target could use.
    IssuerNotRead => "look at the address and the cause that the message names; the target may see \
        another network than you",

    /// A prefix is empty, so that the issuer can name any user or group, system ones too.
    EmptyPrefix => "write a prefix of the hub, like `hub:`",
    /// A prefix starts with `system:`, so that tokens can name the target's own users or groups.
    SystemPrefix => "write a prefix of the hub, like `hub:`",
    /// The email is taken by index, so that the apiserver does not ask for `email_verified`.
    EmailByIndex => "write claims.email, and check claims.email_verified",
    /// No rule bounds how long a token lives.
    NoLifetimeBound => "add the rule `claims.exp - claims.iat <= 3600`",
    /// An expression gives system:masters, whatever the token says: RBAC cannot take that right
    /// back.
    ConstantSystemMasters => "grant rights by RBAC to a group with a prefix",
    /// An expression names system:masters, and may give it to the user.
    NamesSystemMasters => "grant rights by RBAC to a group with a prefix",
    /// Arithmetic of a number claim with a literal means something else before 1.34.
    ArithmeticNotPortable => "wrap the claim: `int(claims.n) + 1`",
    /// `in claims` and `size(claims)` fail from 1.34 on.
    ClaimsAsMapNotPortable => "write `has(claims.x)`",
    /// An escaped name like `kubernetes__dot__io` below the first level does not work before 1.34.
    EscapeNotPortable => "write an index: `claims[\"kubernetes.io\"]`",
    /// A line of the batch is no case.
    NotACase => "write one JSON object per line: minor, config, now, and token or serviceAccount",
    /// Several issuers: one that cannot be reached blocks every reload of the file.
    ManyIssuers => "know that a dead issuer keeps the old file in force for all",
    /// More than one audience is accepted.
    ManyAudiences => "name one audience, which only this target accepts",
    /// No rule asks that a ServiceAccount token is for one audience only, so that others who get it
    /// can use it here.
    NoAudienceCount => "add the rule `claims.aud.size() == 1`",

    /// What was named to start from is not there, or may not be read.
    StartUnread => "check the kind, the name and the namespace, and your own rights to get it on \
        the hub",
    /// The kubeconfig holds what its reader drops or refuses, or lacks an address or a token.
    KubeconfigUnusable => "write one cluster, one user with an inline token, one context and \
        certificate-authority-data",
    /// Flux does not use this reference as it stands.
    FluxReferenceUnusable => "write provider generic, address, ca.crt, audiences and \
        serviceAccountName into the ConfigMap",
    /// A target that a tenant can have written is none of the listed TargetClusters, so no token is
    /// sent there.
    TargetNotListed => "compare what differs with the TargetCluster; give --config FILE if targets \
        are listed in a file; --allow-unlisted-target only if you know the target",
    /// Flux was started without its feature gate for identities of objects.
    FluxGateOff => "start Flux's controllers with \
        --feature-gates=ObjectLevelWorkloadIdentity=true, or use Flux 2.10",
    /// The token cannot be read as a JWT.
    TokenUnreadable => "give the token as it was issued, alone in its file",
    /// Nothing answers where the discovery document should be.
    DiscoveryUnreachable => "publish the document where the target's apiserver can reach it, and \
        open the way there",
    /// The certificate of the discovery document's server is not from the given authority.
    DiscoveryUntrusted => "write the CA of that server into issuer.certificateAuthority",
    /// The discovery document is only given to those who say who they are; a target's apiserver
    /// never does.
    DiscoveryForbidden => "let anybody read it, or have Keyferry publish it: discoveryURL is \
        Keyferry, not the hub",
    /// The server has no discovery document at this path.
    DiscoveryNotServed => "compare discoveryURL with the publicURL of Keyferry, byte by byte",
    /// What is served as discovery document is none.
    DiscoveryMalformed => "serve the issuer's JSON document, with issuer and jwks_uri",
    /// The discovery document is of another issuer than the token.
    DiscoveryIssuerDiffers => "the document's issuer, issuer.url and the token's iss must be one \
        text, byte by byte; a slash at the end counts",
    /// Nothing answers where the discovery document says the keys are.
    KeysUnreachable => "make jwks_uri an address that the target's apiserver can reach",
    /// The certificate of the keys' server is not from the given authority.
    KeysUntrusted => "serve the keys under the same CA as the discovery document",
    /// The server does not give the keys at jwks_uri to anybody who asks.
    KeysNotServed => "serve the key set at jwks_uri, anonymously, with status 200",
    /// The discovery document says that the keys are at an address without https: whoever is on the
    /// way can put keys of their own there.
    KeysNotHttps => "have the issuer write an https address as jwks_uri, or have Keyferry publish \
        its keys",
    /// The key set is empty, so that every token of the issuer is refused.
    KeysEmpty => "have the issuer publish its keys before the target trusts it",
    /// Nothing answers at the target's address.
    TargetUnreachable => "compare the address with the target's, and open the way there",
    /// The target's certificate is not from the given authority.
    TargetUntrusted => "take the CA of the target's apiserver, and no other",
    /// The target does not run with the file that was given.
    ConfigurationNotInForce => "start kube-apiserver with --authentication-config and this file, \
        or look in its log why the file was not loaded; a changed file is loaded within about 10 s",
    /// The target never got the issuer's discovery document, so it refuses every token of it.
    AuthenticatorNotInitialized => "from the target's own network, read the discovery document \
        with the configured CA; it tries again every 10 s",
    /// The target does not get the issuer's keys.
    TargetCannotReadKeys => "from the target's own network, read jwks_uri with the configured CA",
    /// The target refuses the token, and says no more to its bearer.
    TokenRefused => "give --auth-config with the target's file, or --target-kubeconfig of somebody \
        who may create tokenreviews there",
    /// The user may not impersonate the ServiceAccount that the object names.
    ImpersonationDenied => "on the target, grant the user the verb impersonate on that \
        ServiceAccount, or leave out serviceAccountName",
    /// The target answers as the user itself where the user impersonates another one: something on
    /// the way drops the Impersonate headers.
    ImpersonationIgnored => "let every proxy between here and the target pass the Impersonate-User \
        header; without it the rights of the wrong user are used",
    /// The user is known to the target, and may do nothing there.
    NoRights => "on the target, bind a Role or ClusterRole to a subject of kind User with exactly \
        this name; kind ServiceAccount names the target's own accounts",
    /// The target does not let the user probe for flow control, so that client-go slows itself
    /// down.
    FlowControlForbidden => "on the target, grant the verb head on the nonResourceURL /livez/ping",
    /// Flux itself reports that the object is not ready.
    FluxNotReady => "read Flux's message; where every hop before it holds, the cause is not the \
        way to the target: its source, its manifests or its own settings",
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
