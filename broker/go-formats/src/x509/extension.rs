//! Checks the extensions of a certificate.

use std::collections::BTreeSet;

use super::der::{ObjectIdentifier, Reader, tag};
use super::domain::is_domain;
use super::{Fault, name_constraints};
use crate::GoRelease;
use crate::quote::quote;
use crate::url::{self, ParseFault};

struct Extension<'a> {
    id: ObjectIdentifier,
    critical: bool,
    value: &'a [u8],
}

/// Checks all extensions: first their form, then the content of those that Go knows.
pub(super) fn check_extensions(body: &mut Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    let malformed = || Fault::new("x509: malformed extensions");
    let Some(mut explicit) = body
        .enter_optional(tag::context_constructed(3))
        .ok_or_else(malformed)?
    else {
        return Ok(());
    };
    let mut list = explicit.enter(tag::SEQUENCE).ok_or_else(malformed)?;
    let (mut extensions, mut seen) = (Vec::new(), BTreeSet::new());
    while !list.is_empty() {
        let extension = list
            .enter(tag::SEQUENCE)
            .ok_or_else(|| Fault::new("x509: malformed extension"))?;
        let extension = read_extension(extension)?;
        if !seen.insert(extension.id.clone()) {
            return Err(Fault::new(if go < GoRelease::V1_23 {
                "x509: certificate contains duplicate extensions".to_owned()
            } else {
                let id = extension.id;
                format!("x509: certificate contains duplicate extension with OID \"{id}\"")
            }));
        }
        extensions.push(extension);
    }
    extensions
        .iter()
        .try_for_each(|extension| check_extension(extension, go))
}

fn read_extension(mut content: Reader<'_>) -> Result<Extension<'_>, Fault> {
    let id = content
        .object_identifier()
        .ok_or_else(|| Fault::new("x509: malformed extension OID field"))?;
    let critical = if content.has_next(tag::BOOLEAN) {
        content
            .boolean()
            .ok_or_else(|| Fault::new("x509: malformed extension critical field"))?
    } else {
        false
    };
    let value = content
        .content(tag::OCTET_STRING)
        .ok_or_else(|| Fault::new("x509: malformed extension value field"))?;
    Ok(Extension {
        id,
        critical,
        value,
    })
}

fn check_extension(extension: &Extension<'_>, go: GoRelease) -> Result<(), Fault> {
    let value = Reader::new(extension.value);
    let reads_policies = go >= GoRelease::V1_24;
    match extension.id.0.as_slice() {
        [2, 5, 29, 14] => check_subject_key_id(value, extension.critical, go),
        [2, 5, 29, 15] => check_key_usage(value),
        [2, 5, 29, 17] => check_alternative_names(value, go),
        [2, 5, 29, 19] => check_basic_constraints(value, go),
        [2, 5, 29, 30] => name_constraints::check(value, go),
        [2, 5, 29, 31] => check_revocation_lists(value),
        [2, 5, 29, 32] => check_policies(value, go),
        [2, 5, 29, 33] if reads_policies => check_policy_mappings(value),
        [2, 5, 29, 35] => check_authority_key_id(value, extension.critical, go),
        [2, 5, 29, 36] if reads_policies => check_policy_constraints(value),
        [2, 5, 29, 37] => check_extended_key_usage(value),
        [2, 5, 29, 54] if reads_policies => check_inhibit_any_policy(value),
        [1, 3, 6, 1, 5, 5, 7, 1, 1] => check_authority_access(value, extension.critical, go),
        _ => Ok(()),
    }
}

/// Some extensions must not be critical, since Go 1.23.
fn check_not_critical(critical: bool, go: GoRelease, name: &str) -> Result<(), Fault> {
    if critical && go >= GoRelease::V1_23 {
        let text = format!("x509: {name} incorrectly marked critical");
        return Err(Fault::new(text));
    }
    Ok(())
}

fn check_subject_key_id(mut value: Reader<'_>, critical: bool, go: GoRelease) -> Result<(), Fault> {
    check_not_critical(critical, go, "subject key identifier")?;
    let id = value.content(tag::OCTET_STRING);
    Fault::unless(id.is_some(), "x509: invalid subject key identifier")
}

fn check_authority_key_id(
    mut value: Reader<'_>,
    critical: bool,
    go: GoRelease,
) -> Result<(), Fault> {
    check_not_critical(critical, go, "authority key identifier")?;
    let id = value
        .enter(tag::SEQUENCE)
        .and_then(|mut id| id.enter_optional(tag::context(0)));
    Fault::unless(id.is_some(), "x509: invalid authority key identifier")
}

fn check_key_usage(mut value: Reader<'_>) -> Result<(), Fault> {
    Fault::unless(value.bit_string().is_some(), "x509: invalid key usage")
}

fn check_basic_constraints(value: Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    let read = |mut value: Reader<'_>| {
        let mut constraints = value.enter(tag::SEQUENCE)?;
        if constraints.has_next(tag::BOOLEAN) {
            constraints.boolean()?;
        }
        if constraints.has_next(tag::INTEGER) {
            let length = constraints.integer_of_64_bits()?;
            if go >= GoRelease::V1_25 && length < 0 {
                return None;
            }
        }
        Some(())
    };
    Fault::unless(read(value).is_some(), "x509: invalid basic constraints")
}

fn check_extended_key_usage(mut value: Reader<'_>) -> Result<(), Fault> {
    let invalid = || Fault::new("x509: invalid extended key usages");
    let mut usages = value.enter(tag::SEQUENCE).ok_or_else(invalid)?;
    while !usages.is_empty() {
        usages.object_identifier().ok_or_else(invalid)?;
    }
    Ok(())
}

fn check_alternative_names(mut value: Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    const EMAIL: u8 = tag::context(1);
    const DNS: u8 = tag::context(2);
    const URI: u8 = tag::context(6);
    const IP: u8 = tag::context(7);
    let mut names = value
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: invalid subject alternative names"))?;
    while !names.is_empty() {
        let name = names
            .any()
            .ok_or_else(|| Fault::new("x509: invalid subject alternative name"))?;
        match name.tag {
            EMAIL => Fault::unless(name.content.is_ascii(), "x509: SAN rfc822Name is malformed")?,
            DNS => Fault::unless(name.content.is_ascii(), "x509: SAN dNSName is malformed")?,
            URI => check_uri(name.content, go)?,
            IP if !matches!(name.content.len(), 4 | 16) => {
                let length = name.content.len();
                let text = format!("x509: cannot parse IP address of length {length}");
                return Err(Fault::new(text));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_uri(uri: &[u8], go: GoRelease) -> Result<(), Fault> {
    let text = std::str::from_utf8(uri)
        .ok()
        .filter(|text| text.is_ascii())
        .ok_or_else(|| Fault::new("x509: SAN uniformResourceIdentifier is malformed"))?;
    let quoted = quote(text);
    match url::parse_as(text, go) {
        Ok(url) if url.host.is_empty() || is_domain(&url.host, go) => Ok(()),
        Ok(_) => Err(Fault::new(format!(
            "x509: cannot parse URI {quoted}: invalid domain"
        ))),
        Err(ParseFault::Refused(reason)) => Err(Fault::new(format!(
            "x509: cannot parse URI {quoted}: {reason}"
        ))),
        Err(ParseFault::Near(reason)) => Err(Fault::Refused {
            text: format!("x509: cannot parse URI {quoted}: {reason}"),
            exact: false,
        }),
        Err(ParseFault::Undetermined(reason)) => Err(Fault::Undetermined(reason)),
    }
}

fn check_revocation_lists(mut value: Reader<'_>) -> Result<(), Fault> {
    let invalid = || Fault::new("x509: invalid CRL distribution point");
    let mut points = value
        .enter(tag::SEQUENCE)
        .ok_or_else(|| Fault::new("x509: invalid CRL distribution points"))?;
    while !points.is_empty() {
        let mut point = points.enter(tag::SEQUENCE).ok_or_else(invalid)?;
        let name = point
            .enter_optional(tag::context_constructed(0))
            .ok_or_else(invalid)?;
        let Some(mut name) = name else { continue };
        let mut names = name
            .enter(tag::context_constructed(0))
            .ok_or_else(invalid)?;
        while names.has_next(tag::context(6)) {
            names.content(tag::context(6)).ok_or_else(invalid)?;
        }
    }
    Ok(())
}

fn check_policies(mut value: Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    let invalid = || Fault::new("x509: invalid certificate policies");
    let mut policies = value.enter(tag::SEQUENCE).ok_or_else(invalid)?;
    let mut seen = BTreeSet::new();
    while !policies.is_empty() {
        let id = policies
            .enter(tag::SEQUENCE)
            .and_then(|mut policy| policy.content(tag::OBJECT_IDENTIFIER))
            .ok_or_else(invalid)?;
        let twice = !seen.insert(id) && go >= GoRelease::V1_24;
        if twice || !is_long_object_identifier(id) {
            return Err(invalid());
        }
    }
    Ok(())
}

/// Whether bytes are an object identifier whose numbers may have any length.
fn is_long_object_identifier(bytes: &[u8]) -> bool {
    let starts = std::iter::once(&0).chain(bytes);
    bytes.last().is_some_and(|last| last & 0x80 == 0)
        && !starts
            .zip(bytes)
            .any(|(before, byte)| before & 0x80 == 0 && *byte == 0x80)
}

fn check_policy_mappings(mut value: Reader<'_>) -> Result<(), Fault> {
    let invalid = || Fault::new("x509: invalid policy mappings extension");
    let mut mappings = value.enter(tag::SEQUENCE).ok_or_else(invalid)?;
    while !mappings.is_empty() {
        let mut mapping = mappings.enter(tag::SEQUENCE).ok_or_else(invalid)?;
        for _ in 0..2 {
            mapping
                .content(tag::OBJECT_IDENTIFIER)
                .ok_or_else(invalid)?;
        }
    }
    Ok(())
}

fn check_policy_constraints(mut value: Reader<'_>) -> Result<(), Fault> {
    let invalid = || Fault::new("x509: invalid policy constraints extension");
    let mut constraints = value.enter(tag::SEQUENCE).ok_or_else(invalid)?;
    for number in [0, 1] {
        let tag = tag::context(number);
        if constraints.has_next(tag) {
            constraints.integer_of_64_bits_of(tag).ok_or_else(invalid)?;
        }
    }
    Ok(())
}

fn check_inhibit_any_policy(mut value: Reader<'_>) -> Result<(), Fault> {
    Fault::unless(
        value.integer_of_64_bits().is_some(),
        "x509: invalid inhibit any policy extension",
    )
}

fn check_authority_access(
    mut value: Reader<'_>,
    critical: bool,
    go: GoRelease,
) -> Result<(), Fault> {
    check_not_critical(critical, go, "authority info access")?;
    let invalid = || Fault::new("x509: invalid authority info access");
    let mut methods = value.enter(tag::SEQUENCE).ok_or_else(invalid)?;
    while !methods.is_empty() {
        let mut method = methods.enter(tag::SEQUENCE).ok_or_else(invalid)?;
        method.object_identifier().ok_or_else(invalid)?;
        if method.has_next(tag::context(6)) {
            method.content(tag::context(6)).ok_or_else(invalid)?;
        }
    }
    Ok(())
}
