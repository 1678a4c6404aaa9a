//! Whether kube-apiserver accepts a certificate, which depends on the release of Go that it was
//! built with.

use keyferry_go_formats::GoRelease;
use keyferry_go_formats::pem::{self, Block};
use keyferry_go_formats::x509::{self, Fault, PublicKey};

use crate::Minor;

/// What the builds of a kube-apiserver make of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement<T> {
    /// All accept it.
    Taken(T),
    /// All refuse it.
    Refused {
        /// The error message of the newest release of Go.
        message: String,
        /// Whether all builds print exactly this message.
        exact: bool,
    },
    /// Builds of the same minor disagree.
    Unsure {
        /// Which releases of Go disagree, and about what.
        reason: String,
    },
}

/// Returns the releases of Go that builds of a minor use: the one of its first release, and newer
/// ones, to which patch releases and distributions move.
pub fn go_releases(minor: Minor) -> &'static [GoRelease] {
    let first = match minor {
        Minor::V1_30 | Minor::V1_31 => GoRelease::V1_22,
        Minor::V1_32 => GoRelease::V1_23,
        Minor::V1_33 | Minor::V1_34 => GoRelease::V1_24,
        Minor::V1_35 => GoRelease::V1_25,
        Minor::V1_36 | Minor::V1_37 => GoRelease::V1_26,
    };
    first.and_newer()
}

/// Judges a DER-encoded certificate. If it is accepted, returns its key, unless Go does not know
/// the kind of key.
pub(crate) fn judge_certificate(
    der: &[u8],
    releases: &[GoRelease],
) -> Judgement<Option<PublicKey>> {
    let results = x509::parse(der, releases)
        .into_iter()
        .map(|result| result.map(|certificate| certificate.key));
    combine_results(releases, results)
}

/// Judges the value of `certificateAuthority`: PEM with at least one certificate, and none that Go
/// refuses. Other blocks, and blocks with headers, are skipped.
pub(crate) fn judge_authority(text: &[u8], releases: &[GoRelease]) -> Judgement<()> {
    let read: Vec<(GoRelease, Vec<Block>)> = releases
        .iter()
        .map(|go| (*go, pem::blocks(text, *go)))
        .collect();
    // Nearly always, all releases find the same blocks.
    let results = read.chunk_by(|(_, a), (_, b)| a == b).flat_map(|same| {
        let releases: Vec<GoRelease> = same.iter().map(|(go, _)| *go).collect();
        let blocks = same.first().map_or(&[][..], |(_, blocks)| blocks);
        parse_all(blocks, &releases)
    });
    combine_results(releases, results)
}

/// Parses the certificates among the blocks as each release does: the first fault counts.
fn parse_all(blocks: &[Block], releases: &[GoRelease]) -> Vec<Result<(), Fault>> {
    let none = Fault::Refused {
        text: "data does not contain any valid RSA or ECDSA certificates".to_owned(),
        exact: true,
    };
    let mut results = vec![Err(none); releases.len()];
    let certificates = blocks
        .iter()
        .filter(|block| block.label == b"CERTIFICATE" && !block.headers);
    for (index, certificate) in certificates.enumerate() {
        for (result, parsed) in results
            .iter_mut()
            .zip(x509::parse(&certificate.bytes, releases))
        {
            if index == 0 || result.is_ok() {
                *result = parsed.map(drop);
            }
        }
        if results.iter().all(Result::is_err) {
            break;
        }
    }
    results
}

/// Combines the results of the releases, in their order. The newest text is shown, and is exact if
/// all are the same.
fn combine_results<T>(
    releases: &[GoRelease],
    results: impl IntoIterator<Item = Result<T, Fault>>,
) -> Judgement<T> {
    let (mut taken, mut refused) = (None, None);
    for (go, result) in releases.iter().zip(results) {
        match result {
            Ok(value) => taken = Some((go, value)),
            Err(Fault::Undetermined(reason)) => {
                let reason = reason.to_owned();
                return Judgement::Unsure { reason };
            }
            Err(Fault::Refused { text, exact }) => {
                let same = refused
                    .as_ref()
                    .is_none_or(|(_, before, exact)| *before == text && *exact);
                refused = Some((go, text, exact && same));
            }
        }
    }
    match (taken, refused) {
        (Some((_, value)), None) => Judgement::Taken(value),
        (None, Some((_, message, exact))) => Judgement::Refused { message, exact },
        (Some((takes, _)), Some((refuses, message, _))) => {
            let (takes, refuses) = (takes.name(), refuses.name());
            let reason = format!(
                "{takes} accepts the certificate and {refuses} refuses it ({message}); builds of \
                 this release use either"
            );
            Judgement::Unsure { reason }
        }
        (None, None) => Judgement::Unsure {
            reason: "no release of Go is known for it".to_owned(),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u8::try_from(content.len()).unwrap();
        if length < 0x80 {
            [&[tag, length], content.as_slice()].concat()
        } else {
            [&[tag, 0x81, length], content.as_slice()].concat()
        }
    }

    /// A certificate with that serial number and public key.
    fn certificate(serial: &[u8], algorithm: &[u8], key: &[u8]) -> Vec<u8> {
        let signature = der(0x30, &[&[6, 3, 0x2b, 0x65, 0x70]]);
        let name = der(0x30, &[]);
        let time = der(0x17, &[b"200101000000Z"]);
        let body = [
            der(2, &[serial]),
            signature.clone(),
            name.clone(),
            der(0x30, &[&time, &time]),
            name,
            der(0x30, &[&der(0x30, &[algorithm]), &der(3, &[&[0], key])]),
        ];
        let body = der(0x30, &[&body.concat()]);
        der(0x30, &[&body, &signature, &der(3, &[&[0, 1]])])
    }

    const ED25519: &[u8] = &[6, 3, 0x2b, 0x65, 0x70];
    const P256: &[u8] = &[
        6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7,
    ];

    fn refused<T>(message: &str, exact: bool) -> Judgement<T> {
        let message = message.to_owned();
        Judgement::Refused { message, exact }
    }

    #[test]
    fn a_certificate_is_judged_by_the_releases_of_go_of_the_minor() {
        let key = [7; 32];
        let taken = Judgement::Taken(Some(PublicKey::Ed25519(key.to_vec())));
        let judged = |der: &[u8], minor| judge_certificate(der, go_releases(minor));
        let plain = certificate(&[5], ED25519, &key);
        let long = certificate(&[1; 21], ED25519, &key);
        let negative = certificate(&[0xfb], ED25519, &key);
        for minor in Minor::ALL {
            assert_eq!(judged(&plain, minor), taken, "{minor}");
            assert_eq!(judged(&long, minor), taken, "{minor}");
            let padded = judged(&certificate(&[0, 5], ED25519, &key), minor);
            assert_eq!(padded, refused("x509: malformed serial number", true));
            let more = judged(&[plain.as_slice(), &[0]].concat(), minor);
            assert_eq!(more, refused("x509: trailing data", true), "{minor}");
            let negative = judged(&negative, minor);
            if minor < Minor::V1_32 {
                // Built with Go 1.22 at first, and with newer releases later.
                let Judgement::Unsure { reason } = negative else {
                    panic!("{minor}: {negative:?}");
                };
                assert!(reason.starts_with("Go 1.22 accepts"), "{reason}");
                assert!(reason.contains("x509: negative serial number"), "{reason}");
            } else {
                assert_eq!(negative, refused("x509: negative serial number", true));
            }
            // All refuse it, but Go 1.26 has a text of its own.
            let text = "invalid P256 point encoding";
            let short = judged(&certificate(&[5], P256, &[4, 1]), minor);
            assert_eq!(short, refused(text, minor >= Minor::V1_36), "{minor}");
        }
    }

    fn pem(label: &str, der: &[u8]) -> String {
        use base64::Engine;
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    }

    #[test]
    fn an_authority_is_every_certificate_in_its_pem() {
        let good = pem("CERTIFICATE", &certificate(&[5], ED25519, &[7; 32]));
        let bad = pem("CERTIFICATE", &certificate(&[0, 5], ED25519, &[7; 32]));
        let negative = pem("CERTIFICATE", &certificate(&[0xfb], ED25519, &[7; 32]));
        let with_header = bad.replacen("-----\n", "-----\nA: b\n\n", 1);
        let none = "data does not contain any valid RSA or ECDSA certificates";
        let judged = |text: &str, minor| judge_authority(text.as_bytes(), go_releases(minor));
        for minor in Minor::ALL {
            for text in [
                good.clone(),
                format!("a comment\n{good}\n{good}"),
                format!("{}{with_header}{good}", pem("X", &[1])),
            ] {
                assert_eq!(judged(&text, minor), Judgement::Taken(()), "{minor} {text}");
            }
            for text in [
                "-",
                &pem("X", &[1]),
                &with_header,
                &good.replacen("\nM", "\n!", 1),
            ] {
                assert_eq!(judged(text, minor), refused(none, true), "{minor} {text}");
            }
            let second = judged(&format!("{good}{bad}"), minor);
            assert_eq!(second, refused("x509: malformed serial number", true));
            // Whatever Go makes of the first, it refuses the second.
            let either = judged(&format!("{negative}{bad}"), minor);
            let text = if minor < Minor::V1_32 {
                refused("x509: negative serial number", false)
            } else {
                refused("x509: negative serial number", true)
            };
            assert_eq!(either, text, "{minor}");
        }
    }
}
