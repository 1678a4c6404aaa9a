//! User names that Kubernetes gives a meaning: those of ServiceAccounts and nodes.

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const NODE: &str = "system:node:";

/// Splits the user name of a ServiceAccount into its namespace and name, if both are valid.
pub(super) fn service_account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (is_label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

/// Whether the user name is that of this ServiceAccount, with whatever characters it has.
pub(super) fn is_service_account(username: &str, namespace: &str, name: &str) -> bool {
    username
        .strip_prefix(SERVICE_ACCOUNT)
        .and_then(|rest| rest.strip_prefix(namespace))
        .and_then(|rest| rest.strip_prefix(':'))
        == Some(name)
}

/// The groups of every ServiceAccount of a namespace.
pub(super) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

/// The node's name in the user name of a node.
pub(super) fn node(username: &str) -> Option<&str> {
    username
        .strip_prefix(NODE)
        .filter(|name| is_subdomain(name))
}

/// A DNS label as RFC 1123 has it, in lower case.
fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_part(text)
}

/// A DNS name as RFC 1123 has it, in lower case.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_part)
}

fn is_dns_part(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().copied().is_some_and(inner)
        && bytes.last().copied().is_some_and(inner)
        && bytes.iter().all(|&byte| inner(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_names_are_service_accounts_and_nodes() {
        let account = Some(("shop", "app.v1"));
        assert_eq!(
            service_account("system:serviceaccount:shop:app.v1"),
            account
        );
        for other in [
            "system:serviceaccount:shop",
            "system:serviceaccount:shop:",
            "system:serviceaccount::app",
            "system:serviceaccount:shop:app:x",
            "system:serviceaccount:Shop:app",
            "system:serviceaccount:a.b:app",
            "hub:system:serviceaccount:shop:app",
        ] {
            assert_eq!(service_account(other), None, "{other}");
        }
        assert_eq!(node("system:node:n1.example"), Some("n1.example"));
        assert_eq!(node("system:node:"), None);
        assert_eq!(node("system:node:N1"), None);
        assert_eq!(node("system:nodes"), None);
        assert!(is_service_account(
            "system:serviceaccount:A:b:c",
            "A",
            "b:c"
        ));
        assert!(!is_service_account(
            "system:serviceaccount:shop:app2",
            "shop",
            "app"
        ));
    }
}
