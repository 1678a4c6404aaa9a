//! Checks the extension that constrains the names below a CA.

use std::net::IpAddr;

use super::Fault;
use super::der::{Element, Reader, tag};
use super::domain::{is_domain_constraint, is_mailbox};
use crate::GoRelease;
use crate::quote::quote_bytes;

/// Checks the content of the extension: first what is permitted, then what is excluded.
pub(super) fn check(value: Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    let Some([permitted, excluded]) = read_subtrees(value) else {
        return Err(Fault::new("x509: invalid NameConstraints extension"));
    };
    let lists = [permitted, excluded].map(|list| list.unwrap_or(Reader::new(&[])));
    if lists.iter().all(|list| list.is_empty()) {
        return Err(Fault::new("x509: empty name constraints extension"));
    }
    lists
        .into_iter()
        .try_for_each(|list| check_subtrees(list, go))
}

fn read_subtrees(mut value: Reader<'_>) -> Option<[Option<Reader<'_>>; 2]> {
    let mut lists = value.enter(tag::SEQUENCE)?;
    let permitted = lists.enter_optional(tag::context_constructed(0))?;
    let excluded = lists.enter_optional(tag::context_constructed(1))?;
    (value.is_empty() && lists.is_empty()).then_some([permitted, excluded])
}

fn check_subtrees(mut list: Reader<'_>, go: GoRelease) -> Result<(), Fault> {
    while !list.is_empty() {
        let name = list
            .enter(tag::SEQUENCE)
            .and_then(|mut subtree| subtree.any())
            .ok_or_else(|| Fault::new("x509: invalid NameConstraints extension"))?;
        check_name(name, go)?;
    }
    Ok(())
}

fn check_name(name: Element<'_>, go: GoRelease) -> Result<(), Fault> {
    const EMAIL: u8 = tag::context(1);
    const DNS: u8 = tag::context(2);
    const URI: u8 = tag::context(6);
    const IP: u8 = tag::context(7);
    let text = name.content;
    if name.tag == IP {
        return check_network(text);
    }
    if !matches!(name.tag, EMAIL | DNS | URI) {
        return Ok(());
    }
    let quoted = quote_bytes(text);
    if !text.is_ascii() {
        return Err(Fault::new(format!(
            "x509: invalid constraint value: x509: {quoted} cannot be encoded as an IA5String"
        )));
    }
    let (kind, holds) = match name.tag {
        DNS => ("dnsName", is_domain_constraint(text, go)),
        EMAIL if text.contains(&b'@') => ("rfc822Name", is_mailbox(text, go)),
        EMAIL => ("rfc822Name", is_domain_constraint(text, go)),
        _ if is_ip_address(text) => {
            return Err(Fault::new(format!(
                "x509: failed to parse URI constraint {quoted}: cannot be IP address"
            )));
        }
        _ => ("URI", is_domain_constraint(text, go)),
    };
    if holds {
        return Ok(());
    }
    Err(Fault::new(format!(
        "x509: failed to parse {kind} constraint {quoted}"
    )))
}

fn is_ip_address(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<IpAddr>().is_ok())
}

fn check_network(network: &[u8]) -> Result<(), Fault> {
    let length = network.len();
    if !matches!(length, 8 | 32) {
        return Err(Fault::new(format!(
            "x509: IP constraint contained value of length {length}"
        )));
    }
    let (_, mask) = network.split_at(length / 2);
    // The ones come first: a byte is full, or the last one with ones in it.
    let full = mask.iter().take_while(|byte| **byte == 0xff).count();
    let rest = mask.get(full..).unwrap_or_default();
    let (first, others) = rest.split_first().unwrap_or((&0, &[]));
    if first.leading_ones() == first.count_ones() && others.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let hex: String = mask.iter().map(|byte| format!("{byte:02x}")).collect();
    Err(Fault::new(format!(
        "x509: IP constraint contained invalid mask {hex}"
    )))
}
