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
    let flags = read(text, notes)?;
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
    fn set(&mut self, name: &str, value: String) -> Result<(), OidcFlagsError> {
        match name {
            "oidc-issuer-url" => self.issuer_url = value,
            "oidc-client-id" => self.client_id = value,
            "oidc-ca-file" => self.ca_file = value,
            "oidc-username-claim" => self.username_claim = Some(value),
            "oidc-username-prefix" => self.username_prefix = value,
            "oidc-groups-claim" => self.groups_claim = value,
            "oidc-groups-prefix" => self.groups_prefix = value,
            "oidc-required-claim" => {
                let (claim, required) =
                    value.split_once('=').ok_or(OidcFlagsError::RequiredClaim)?;
                self.required_claims
                    .insert(claim.trim().to_owned(), required.trim().to_owned());
            }
            "oidc-signing-algs" => {
                self.signing_algs = value.split(',').map(str::to_owned).collect();
            }
            other => return Err(OidcFlagsError::Unknown(other.to_owned())),
        }
        Ok(())
    }

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

/// Reads the flags in the forms in which people have them: a command line, the arguments of a
/// manifest, `kube-apiserver-arg` of K3s and RKE2, and `extraArgs` of kubeadm as a map or a list.
/// Everything that is no `--oidc-*` flag is left out, and its number is noted.
fn read(text: &str, notes: &mut Vec<String>) -> Result<OidcFlags, OidcFlagsError> {
    let mut flags = OidcFlags::default();
    let mut left_out = 0_usize;
    let mut words = words(text)?.into_iter();
    while let Some(word) = words.next() {
        let flag = flag_of(&word);
        if !flag.starts_with("oidc-") {
            // K3s takes the flag as the value of one of its own.
            let is_list = flag.trim_end_matches(['+', ':']) == "kube-apiserver-arg";
            left_out += usize::from(word.starts_with("--") && !is_list);
            continue;
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let no_value = || OidcFlagsError::NoValue(flag.to_owned());
                let value = words.next().ok_or_else(no_value)?;
                if flag_of(&value).starts_with("oidc-") {
                    return Err(no_value());
                }
                (flag.to_owned(), value)
            }
        };
        flags.set(&name, value)?;
    }
    if flags.signing_algs.is_empty() {
        flags.signing_algs = vec!["RS256".to_owned()];
    }
    if left_out > 0 {
        notes.push(format!(
            "{left_out} other flags of the text were left out: only --oidc-* flags are mapped"
        ));
    }
    Ok(flags)
}

/// Returns a word without what stands before a flag: dashes, and K3s' own flag.
fn flag_of(word: &str) -> &str {
    let word = word.trim_start_matches(['[', '"', '\'']);
    let word = word.strip_prefix("--").unwrap_or(word);
    let word = word
        .strip_prefix("kube-apiserver-arg=")
        .unwrap_or(word)
        .trim_start_matches(['"', '\'']);
    word.strip_prefix("--").unwrap_or(word)
}

/// Splits a text into words. A line of a YAML list or map is one argument, and another line is
/// split as a shell does.
fn words(text: &str) -> Result<Vec<String>, OidcFlagsError> {
    let mut all = Vec::new();
    let mut shell = String::new();
    // The name of the last `- name:` of kubeadm's list, whose value is in the next line.
    let mut named: Option<String> = None;
    for line in text.lines() {
        let line = line.trim();
        let item = line.strip_prefix("- ").map(str::trim);
        let pair = yaml_pair(item.unwrap_or(line));
        match (item, pair) {
            (Some(_), Some(("name", value))) => named = Some(value.to_owned()),
            (_, Some(("value", value))) if named.is_some() => {
                all.extend(named.take().map(|name| format!("{name}={}", scalar(value))));
            }
            (_, Some((name, value))) if name.starts_with("oidc-") => {
                all.push(format!("{name}={}", scalar(value)));
            }
            // Several items on one line are a paste that lost its line ends.
            (Some(item), _) if !item.contains(" - ") => all.push(scalar(item).to_owned()),
            // A line may go on after a backslash.
            _ => {
                shell.push_str(line.strip_suffix('\\').unwrap_or(line));
                shell.push('\n');
            }
        }
    }
    all.extend(shell_words(&shell)?);
    let is_list = text.contains('[');
    let trim = |word: String| match word.strip_suffix(']').unwrap_or(&word).strip_suffix(',') {
        Some(word) => word.to_owned(),
        None if is_list => word.trim_end_matches(']').to_owned(),
        None => word,
    };
    Ok(all
        .into_iter()
        .map(trim)
        .filter(|word| word != "-")
        .collect())
}

/// Returns the key and the value of a line `key: value`.
fn yaml_pair(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(": ")?;
    let name = name.trim_matches(['"', '\'']);
    let plain = |character: char| character.is_ascii_alphanumeric() || character == '-';
    (!name.is_empty() && name.chars().all(plain)).then(|| (name, value.trim()))
}

/// Returns a YAML value without its quotes, or without the comment after it.
fn scalar(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some((inside, _)) = value
            .strip_prefix(quote)
            .and_then(|rest| rest.split_once(quote))
        {
            return inside;
        }
    }
    value.split(" #").next().unwrap_or(value).trim_end()
}

/// Splits words as a shell does, with both kinds of quotes. Substitutes nothing, and refuses
/// backslashes within a line.
fn shell_words(text: &str) -> Result<Vec<String>, OidcFlagsError> {
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
