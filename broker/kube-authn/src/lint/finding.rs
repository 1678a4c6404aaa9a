//! One problem in a file.

use std::borrow::Cow;

use serde::Serialize;

use crate::Code;

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Severity {
    /// The apiserver refuses the configuration, or it gives rights away.
    Error,
    /// The configuration works, but will cause trouble.
    Warning,
    /// Good to know; nothing needs to change.
    Note,
}

/// One problem in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The stable name of the problem.
    pub code: Code,
    /// How severe it is.
    pub severity: Severity,
    /// The field, like `jwt[0].issuer.url`; empty for the file as a whole.
    pub path: String,
    /// The line of the field, or of the nearest one above it that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The column of the same, in characters from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// What is wrong; for errors, in the apiserver's words.
    pub message: String,
    /// What to do.
    pub fix: Cow<'static, str>,
}

pub(super) fn make_finding(
    code: Code,
    severity: Severity,
    path: &str,
    message: impl Into<String>,
) -> Finding {
    Finding {
        code,
        severity,
        path: path.to_owned(),
        line: None,
        column: None,
        message: message.into(),
        fix: code.fix().into(),
    }
}
