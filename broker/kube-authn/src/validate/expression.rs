//! Compiles one expression, and reports a failure as an error of its field.

use keyferry_cel_kubernetes::{CompileFault, Expression, Scope};

use super::{Check, ErrorType};
use crate::Code;

/// The type that an expression must have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedType {
    Anything,
    Bool,
}

/// Compiles an expression. Returns `None` if an error was recorded.
pub(super) fn compile_expression(
    check: &mut Check,
    scope: Scope,
    text: &str,
    wanted: ExpectedType,
    path: &str,
) -> Option<Expression> {
    match check.environment.compile(scope, text) {
        Ok(expression) if wanted == ExpectedType::Bool && !expression.is_bool() => {
            check.add_invalid(Code::ExpressionNotBool, path, text, "must evaluate to bool");
            None
        }
        Ok(expression) => Some(expression),
        Err(CompileFault::Refused { message }) => {
            if message.starts_with("program instantiation failed") {
                if wanted == ExpectedType::Bool && !is_bool(check, scope, text) {
                    check.add_invalid(Code::ExpressionNotBool, path, text, "must evaluate to bool");
                    return None;
                }
                // The text is valid, but a constant in it cannot be computed; the apiserver reports
                // an internal error.
                check.push_error(
                    Code::ExpressionNotCompiled,
                    ErrorType::Internal,
                    path,
                    None,
                    &message,
                );
            } else {
                check.add_invalid(
                    Code::ExpressionNotCompiled,
                    path,
                    text,
                    &format!("compilation failed: {message}"),
                );
            }
            None
        }
        Err(CompileFault::Undetermined(undetermined)) => {
            check.add_undetermined(Code::ExpressionUndetermined, path, &undetermined.reason);
            None
        }
    }
}

/// Whether an expression without a program has type bool, which the apiserver checks first. A bool
/// compares with a bool but not with a number; an expression without a static type compares with
/// both.
fn is_bool(check: &Check, scope: Scope, text: &str) -> bool {
    let compares = |with: &str| {
        let compared = check
            .environment
            .compile(scope, &format!("({text}\n) == {with}"));
        !matches!(compared, Err(CompileFault::Refused { message }) if message.starts_with("ERROR: "))
    };
    compares("true") && !compares("1")
}
