//! Renders an entry that maps users exactly as the `--oidc-*` flags of kube-apiserver do.

use std::collections::BTreeMap;
use std::path::Path;

use super::inputs::CertificatesError;
use super::{indented, inputs, quoted};

/// Why the flags cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcFlagsError {
    #[error(
        "reading --from-oidc-flags: --oidc-issuer-url and --oidc-client-id are needed, as \
         kube-apiserver needs them"
    )]
    Incomplete,
    #[error(transparent)]
    Certificates(#[from] CertificatesError),
    /// The file that --oidc-ca-file names is not on this machine.
    #[error("{0}; copy the file here and give --oidc-ca-file FILE")]
    CaFile(CertificatesError),
    #[error("reading --from-oidc-flags: {0:?} is not a flag")]
    NotFlag(String),
    #[error("reading --from-oidc-flags: --{0} has no value")]
    NoValue(String),
    #[error("reading --from-oidc-flags: --oidc-required-claim is not claim=value")]
    RequiredClaim,
    #[error("reading --from-oidc-flags: --{0} is no --oidc-* flag that is known here")]
    Unknown(String),
    #[error(
        "reading --from-oidc-flags: it holds a backslash; write the flags in one line, in quotes \
         where needed"
    )]
    Backslash,
    #[error("reading --from-oidc-flags: a quote is not closed")]
    OpenQuote,
}

/// The flags, as kube-apiserver stores them.
#[derive(Debug, Default)]
struct OidcFlags {
    issuer_url: String,
    client_id: String,
    ca_file: String,
    username_claim: Option<String>,
    username_prefix: String,
    groups_claim: String,
    groups_prefix: String,
    required_claims: BTreeMap<String, String>,
    signing_algs: Vec<String>,
}

/// Renders the entry as an item of a block list without indentation.
///
/// # Errors
/// [`OidcFlagsError`]: an unknown flag, a missing flag, or a file that cannot be read.
pub(super) fn entry(
    text: &str,
    ca_file: Option<&Path>,
    notes: &mut Vec<String>,
) -> Result<String, OidcFlagsError> {
    let flags = read(text)?;
    if flags.issuer_url.is_empty() || flags.client_id.is_empty() {
        return Err(OidcFlagsError::Incomplete);
    }
    let authority = match (ca_file, flags.ca_file.as_str()) {
        (Some(path), _) => Some(inputs::certificates(path)?),
        (None, "") => None,
        (None, path) => {
            let certificates = inputs::certificates(Path::new(path));
            Some(certificates.map_err(OidcFlagsError::CaFile)?)
        }
    };
    notes.push(
        "kube-apiserver takes --authentication-config or --oidc-* flags, never both: remove \
        all the --oidc-* flags"
            .to_owned(),
    );
    if flags.signing_algs != Algorithms::ALL {
        notes.push(format!(
            "the flags accept tokens signed with {}; a file cannot say that, and accepts RS, ES \
             and PS with 256, 384 and 512",
            flags.signing_algs.join(", ")
        ));
    }
    Ok(flags.entry(authority.as_deref()))
}

struct Algorithms;

impl Algorithms {
    const ALL: [&'static str; 9] = [
        "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512",
    ];
}

impl OidcFlags {
    fn entry(&self, authority: Option<&str>) -> String {
        let mut issuer = format!("url: {}\n", quoted(&self.issuer_url));
        if let Some(pem) = authority {
            issuer += &format!("certificateAuthority: |\n{}", indented(pem.trim_end(), 2));
        }
        issuer += &format!("audiences:\n  - {}\n", quoted(&self.client_id));
        let claim = self.username_claim.as_deref().unwrap_or("sub");
        // Without the prefix flag, names are prefixed with the issuer, unless they are email
        // addresses; `-` means no prefix.
        let prefix = match self.username_prefix.as_str() {
            "" if claim != "email" => format!("{}#", self.issuer_url),
            "-" => String::new(),
            prefix => prefix.to_owned(),
        };
        let mut mappings = format!(
            "username:\n  claim: {}\n  prefix: {}\n",
            quoted(claim),
            quoted(&prefix)
        );
        if !self.groups_claim.is_empty() {
            mappings += &format!(
                "groups:\n  claim: {}\n  prefix: {}\n",
                quoted(&self.groups_claim),
                quoted(&self.groups_prefix)
            );
        }
        let rules: String = self
            .required_claims
            .iter()
            .map(|(claim, value)| {
                format!(
                    "- claim: {}\n  requiredValue: {}\n",
                    quoted(claim),
                    quoted(value)
                )
            })
            .collect();
        let rules = if rules.is_empty() {
            rules
        } else {
            format!("  claimValidationRules:\n{}", indented(&rules, 4))
        };
        format!(
            "# As the --oidc-* flags map it.\n- issuer:\n{}{rules}  claimMappings:\n{}",
            indented(&issuer, 4),
            indented(&mappings, 4)
        )
    }
}

fn read(text: &str) -> Result<OidcFlags, OidcFlagsError> {
    let mut flags = OidcFlags::default();
    let mut words = words(text)?.into_iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else {
            return Err(OidcFlagsError::NotFlag(word));
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (
                flag.to_owned(),
                words
                    .next()
                    .ok_or_else(|| OidcFlagsError::NoValue(flag.to_owned()))?,
            ),
        };
        match name.as_str() {
            "oidc-issuer-url" => flags.issuer_url = value,
            "oidc-client-id" => flags.client_id = value,
            "oidc-ca-file" => flags.ca_file = value,
            "oidc-username-claim" => flags.username_claim = Some(value),
            "oidc-username-prefix" => flags.username_prefix = value,
            "oidc-groups-claim" => flags.groups_claim = value,
            "oidc-groups-prefix" => flags.groups_prefix = value,
            "oidc-required-claim" => {
                let (claim, required) =
                    value.split_once('=').ok_or(OidcFlagsError::RequiredClaim)?;
                flags
                    .required_claims
                    .insert(claim.trim().to_owned(), required.trim().to_owned());
            }
            "oidc-signing-algs" => {
                flags.signing_algs = value.split(',').map(str::to_owned).collect()
            }
            other => {
                return Err(OidcFlagsError::Unknown(other.to_owned()));
            }
        }
    }
    if flags.signing_algs.is_empty() {
        flags.signing_algs = vec!["RS256".to_owned()];
    }
    Ok(flags)
}

/// Splits words as a shell does, with both kinds of quotes. Substitutes nothing, and refuses
/// backslashes.
fn words(text: &str) -> Result<Vec<String>, OidcFlagsError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in text.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            (None, '\\') => {
                return Err(OidcFlagsError::Backslash);
            }
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err(OidcFlagsError::OpenQuote);
    }
    words.extend(word);
    Ok(words)
}
