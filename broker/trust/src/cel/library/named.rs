//! Named formats. Only their names are known here; what they make of a text is not decided.

use super::super::value::Val;
use super::Called;

/// A format, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) struct FormatName(&'static str);

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

pub(super) fn call(overload: &str, args: &[Val]) -> Option<Called> {
    let known = |name: &str| NAMES.into_iter().find(|n| *n == name).map(|n| Val::Format(FormatName(n)));
    Some(match (overload, args) {
        ("format-named", [Val::Str(name)]) => Ok(Val::Optional(known(name).map(Into::into))),
        ("format-validate", [Val::Format(FormatName(name)), _]) => Err(format!("the validation of the format {name}")),
        (_, []) => Ok(known(overload.strip_prefix("format.")?)?),
        _ => return None,
    })
}
