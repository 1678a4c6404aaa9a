//! User names that Kubernetes gives a meaning: those of ServiceAccounts and nodes.

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const NODE: &str = "system:node:";

/// Splits the user name of a ServiceAccount into its namespace and name, if both are valid.
pub fn parse_service_account(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (is_label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

/// The user name of a ServiceAccount.
pub(crate) fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// The groups that every ServiceAccount of a namespace has, beside `system:authenticated`.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

/// The node's name in the user name of a node.
pub fn node_name(user_name: &str) -> Option<&str> {
    user_name
        .strip_prefix(NODE)
        .filter(|name| is_subdomain(name))
}

/// Whether the text is a DNS label of RFC 1123, in lower case.
fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_part(text)
}

/// Whether the text is a DNS name of RFC 1123, in lower case.
pub(crate) fn is_subdomain(text: &str) -> bool {
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
        for (user_name, account) in [
            (
                "system:serviceaccount:shop:app.v1",
                Some(("shop", "app.v1")),
            ),
            ("system:serviceaccount:shop", None),
            ("system:serviceaccount:shop:", None),
            ("system:serviceaccount::app", None),
            ("system:serviceaccount:shop:app:x", None),
            ("system:serviceaccount:Shop:app", None),
            ("system:serviceaccount:a.b:app", None),
            ("hub:system:serviceaccount:shop:app", None),
        ] {
            assert_eq!(parse_service_account(user_name), account, "{user_name}");
        }
        for (user_name, node) in [
            ("system:node:n1.example", Some("n1.example")),
            ("system:node:", None),
            ("system:node:N1", None),
            ("system:nodes", None),
        ] {
            assert_eq!(node_name(user_name), node, "{user_name}");
        }
    }
}
