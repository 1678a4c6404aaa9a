//! Every reason that this crate gives, under a stable name.
//!
//! Each code has a file in `broker/kube-authn/codes`, which is the one text about it.

use std::sync::LazyLock;

use serde::Serialize;

use crate::code_text::CodeText;

macro_rules! codes {
    ($($name:ident,)*) => {
        /// A reason, in PascalCase.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Code {
            $(
                #[doc = include_str!(concat!("../codes/", stringify!($name), ".md"))]
                $name,
            )*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name, as reports print it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The text about the code, in Markdown: what happened, the fix, and where it shows.
            #[must_use]
            pub fn markdown(self) -> &'static str {
                match self {
                    $(
                        Self::$name => {
                            include_str!(concat!("../codes/", stringify!($name), ".md"))
                        }
                    )*
                }
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
    EmptyFile,
    NotJson,
    NotYaml,
    KindMissing,
    ApiVersionMissing,
    ApiVersionMalformed,
    KindNotRegistered,
    OtherKind,
    WrongFieldType,
    UnknownField,
    DuplicateField,
    SecondDocument,

    TooManyAuthenticators,
    UrlMissing,
    UrlNotParsed,
    UrlNotHttps,
    UrlHasUser,
    UrlHasQuery,
    UrlHasFragment,
    IssuerIsTargets,
    DuplicateIssuer,
    DuplicateDiscoveryUrl,
    DiscoveryUrlIsIssuer,
    AudiencesMissing,
    AudienceEmpty,
    DuplicateAudience,
    MatchPolicyWrong,
    AuthorityNotCertificates,
    EgressSelectorUnknown,
    ClaimAndExpression,
    ClaimOrExpressionMissing,
    MessageWithClaim,
    DuplicateRule,
    RequiredValueWithExpression,
    ExpressionNotCompiled,
    ExpressionNotBool,
    ExpressionMissing,
    PrefixWithExpression,
    PrefixMissing,
    ExtraKeyMissing,
    ExtraKeyMalformed,
    ExtraKeyNotLowercase,
    ExtraKeyReserved,
    DuplicateExtraKey,
    EmailVerifiedUnused,
    ConditionsWithoutAnonymous,
    OidcFlagsWithFile,
    AnonymousFlagWithSection,
    AnonymousChanged,
    TemplateNotRendered,

    NotCompact,
    NotThreeParts,
    PayloadNotBase64,
    PayloadNotJson,
    IssuerDiffers,
    MalformedJwt,
    AlgorithmUnsupported,
    SignatureInvalid,
    KeySetUndecodable,
    ClaimsMalformed,
    ClaimSourceMissing,
    AudienceDiffers,
    TokenExpired,
    TokenNotYetValid,
    DistributedClaimsMalformed,
    UsernameClaimMissing,
    UsernameClaimNotString,
    EmailNotVerified,
    EmailVerifiedNotBool,
    GroupsClaimMalformed,
    UidClaimMissing,
    UidClaimNotString,
    ClaimsNotConvertible,
    UsernameExpressionFailed,
    UsernameNotString,
    UsernameEmpty,
    GroupsExpressionFailed,
    GroupsNotStrings,
    UidExpressionFailed,
    UidNotString,
    ExtraExpressionFailed,
    ExtraNotStrings,
    RequiredClaimMissing,
    RequiredClaimNotString,
    RequiredClaimDiffers,
    ClaimRuleFailed,
    ClaimRuleFalse,
    UserRuleFailed,
    UserRuleFalse,
    ConfigurationRefused,

    TooLarge,
    TooDeep,
    UnusualYaml,
    UnusualUrl,
    UnusualKey,
    UnusualCertificate,
    ExpressionUndetermined,
    NeedsNetwork,
    IssuerNotRead,
    NewerRelease,

    EmptyPrefix,
    SystemPrefix,
    EmailByIndex,
    NoLifetimeBound,
    ConstantSystemMasters,
    NamesSystemMasters,
    ArithmeticNotPortable,
    ClaimsAsMapNotPortable,
    EscapeNotPortable,
    NotACase,
    ManyIssuers,
    ManyAudiences,
    NoAudienceCount,
    PublicIssuerOpen,
    IssuerOfEveryCluster,
    ClaimIsPath,
    NeverMatches,
    AnonymousNotStated,

    StartUnread,
    CertificateOfTheHub,
    KubeconfigUnusable,
    FluxReferenceUnusable,
    TargetNotListed,
    FluxGateOff,
    TokenUnreadable,
    DiscoveryUnreachable,
    DiscoveryUntrusted,
    DiscoveryForbidden,
    DiscoveryNotServed,
    DiscoveryMalformed,
    DiscoveryIssuerDiffers,
    KeysUnreachable,
    KeysUntrusted,
    KeysNotServed,
    KeysNotHttps,
    KeysEmpty,
    PrivateKeyPublished,
    KeysUnusable,
    TargetUnreachable,
    TargetUntrusted,
    ServerNameDiffers,
    ServerCertificateExpired,
    ProxyUnusable,
    ExecPluginMissing,
    ExecPluginFailed,
    RequestAnonymous,
    ConfigurationNotActive,
    AuthenticatorNotInitialized,
    TargetCannotReadKeys,
    TokenRefused,
    ImpersonationDenied,
    FluxAccountMissing,
    ImpersonationIgnored,
    NoRights,
    FlowControlForbidden,
    FluxNotReady,
}

/// The cause and the fix of each code, in the order of [`Code::ALL`].
static CAUSES_AND_FIXES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let texts = Code::ALL
        .iter()
        .map(|code| CodeText::parse(code.markdown()).unwrap_or_default());
    texts.map(|text| (text.cause(), text.advice())).collect()
});

impl Code {
    /// The cause, in a sentence.
    #[must_use]
    pub fn cause(self) -> &'static str {
        self.cause_and_fix().map_or("", |(cause, _)| cause.as_str())
    }

    /// What to do about it.
    #[must_use]
    pub fn fix(self) -> &'static str {
        self.cause_and_fix().map_or("", |(_, fix)| fix.as_str())
    }

    fn cause_and_fix(self) -> Option<&'static (String, String)> {
        CAUSES_AND_FIXES.get(self as usize)
    }

    /// Whether it says that something is not decided here, rather than that something is wrong.
    #[must_use]
    pub fn is_undetermined(self) -> bool {
        let undecided = [
            Self::TooLarge,
            Self::TooDeep,
            Self::UnusualYaml,
            Self::UnusualUrl,
            Self::UnusualKey,
            Self::UnusualCertificate,
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
            // Reports print both as they are.
            assert!(
                !code.cause().contains("](") && !code.fix().contains("]("),
                "{code}"
            );
        }
        assert_eq!(Code::EmptyFile.cause(), "The file is empty.");
        assert_eq!(
            Code::FluxNotReady.cause(),
            "Flux itself reports that the object is not ready."
        );
    }
}
