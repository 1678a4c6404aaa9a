//! Checks the key of an extra: a domain-prefixed path in lower case.

use keyferry_go_formats::quote::quote;

use super::{Check, ErrorType};
use crate::{Code, Minor};

const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
                         end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const PATH_MESSAGE: &str =
    "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";

pub(super) fn check_extra_key(check: &mut Check, key: &str, path: &str) {
    check_prefixed_path(check, key, path);
    if key != key.to_lowercase() {
        let detail = if check.new_wording() {
            "must be lowercase"
        } else {
            "key must be lowercase"
        };
        check.add_invalid(Code::ExtraKeyNotLowercase, path, key, detail);
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let reserved = |root: &str| {
        domain == root
            || domain
                .strip_suffix(root)
                .is_some_and(|rest| rest.ends_with('.'))
    };
    if check.minor >= Minor::V1_32 && (reserved("kubernetes.io") || reserved("k8s.io")) {
        let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        check.add_invalid(Code::ExtraKeyReserved, path, key, detail);
    }
}

fn check_prefixed_path(check: &mut Check, key: &str, path: &str) {
    if key.is_empty() {
        return check.add_required(Code::ExtraKeyMissing, path, "");
    }
    let (host, rest) = key.split_once('/').unwrap_or(("", ""));
    if host.is_empty() || rest.is_empty() {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return check.add_invalid(Code::ExtraKeyMalformed, path, key, detail);
    }
    if host.len() > 253 {
        check.add_invalid(
            Code::ExtraKeyMalformed,
            path,
            host,
            "must be no more than 253 characters",
        );
    }
    if !host.split('.').all(is_label) {
        check.add_invalid(Code::ExtraKeyMalformed, path, host, SUBDOMAIN_MESSAGE);
    }
    if !rest
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte))
    {
        check.push_error(
            Code::ExtraKeyMalformed,
            ErrorType::Invalid,
            path,
            Some(quote(rest)),
            PATH_MESSAGE,
        );
    }
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.first().copied().is_some_and(inner)
        && bytes.last().copied().is_some_and(inner)
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}
