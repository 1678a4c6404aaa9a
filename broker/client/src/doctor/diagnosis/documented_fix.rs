//! What to do about a reason of the server, from the reason's own text.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use keyferry_api::reason::Reason;
use keyferry_kube_authn::code_text::CodeText;

use crate::code_link::with_addresses;

static FIXES: LazyLock<BTreeMap<Reason, String>> = LazyLock::new(|| {
    let texts = Reason::ALL
        .iter()
        .filter_map(|reason| Some((*reason, CodeText::parse(reason.markdown())?)));
    texts
        .map(|(reason, text)| (reason, with_addresses(&text.advice())))
        .collect()
});

/// Returns the documented fix of a reason, in one line.
pub(super) fn of(reason: Reason) -> &'static str {
    FIXES.get(&reason).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_fix_in_one_line() {
        for reason in Reason::ALL {
            let fix = of(*reason);
            assert!(
                !fix.is_empty() && !fix.contains('\n'),
                "{}",
                reason.as_str()
            );
            assert!(
                !fix.contains("](") && !fix.contains("keyferry explain"),
                "{fix}"
            );
        }
    }
}
