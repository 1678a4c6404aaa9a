//! The links in the texts about codes, which a terminal cannot follow.

use keyferry_api::reason::Reason;

/// The address of the repository's files.
const REPOSITORY_URL: &str = "https://github.com/keyferry/keyferry/blob/main/";

/// Replaces `[text](target)` by `text (address)`.
pub fn with_addresses(markdown: &str) -> String {
    replace_links(markdown, |text, target| {
        format!("{text} ({REPOSITORY_URL}{})", repository_path(target))
    })
}

/// Replaces each `[text](target)` by what `replacement` makes of text and target.
pub fn replace_links(markdown: &str, replacement: impl Fn(&str, &str) -> String) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let link = after
            .split_once("](")
            .and_then(|(text, tail)| Some((text, tail.split_once(')')?)));
        match link {
            Some((text, (target, tail))) if !text.contains(['[', ']']) => {
                out.push_str(&replacement(text, target));
                rest = tail;
            }
            _ => {
                out.push('[');
                rest = after;
            }
        }
    }
    out + rest
}

/// Returns the path of a link's target in the repository. A link to another code's file leads to
/// the code's section in the documents.
pub fn repository_path(target: &str) -> String {
    if let Some(path) = target.strip_prefix("../../../") {
        return path.to_owned();
    }
    let file = target.rsplit('/').next().unwrap_or_default();
    let code = file.strip_suffix(".md").unwrap_or(file);
    let page = if Reason::ALL.iter().any(|reason| reason.as_str() == code) {
        "reason-codes.md"
    } else {
        "verify-codes.md"
    };
    format!("docs/reference/{page}#{}", code.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_get_their_address() {
        assert_eq!(
            with_addresses("see [a](../../../docs/b.md#c), jwt[0] and [d](KeySettling.md)."),
            "see a (https://github.com/keyferry/keyferry/blob/main/docs/b.md#c), jwt[0] and d \
             (https://github.com/keyferry/keyferry/blob/main/docs/reference/reason-codes.md#keysettling)."
        );
        assert_eq!(
            repository_path("../../kube-authn/codes/NoRights.md"),
            "docs/reference/verify-codes.md#norights"
        );
    }
}
