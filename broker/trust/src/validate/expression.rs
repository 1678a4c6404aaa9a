//! Compiling one expression, and what a failure says about its field.

use super::{Check, ErrorType};
use crate::Code;
use crate::cel::{CompileFault, Expression, Scope};

/// What an expression must evaluate to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Anything,
    Bool,
}

/// Compiles an expression. `None` where an error was noted.
pub(super) fn compile(check: &mut Check, scope: Scope, text: &str, wanted: Wanted, path: &str) -> Option<Expression> {
    match check.environment.compile(scope, text) {
        Ok(expression) if wanted == Wanted::Bool && !expression.is_bool() => {
            check.invalid(Code::ExpressionNotBool, path, text, "must evaluate to bool");
            None
        }
        Ok(expression) => Some(expression),
        Err(CompileFault::Refused { message }) => {
            if message.starts_with("program instantiation failed") {
                // The text is right, but a constant in it cannot be computed; the apiserver calls that its own fault.
                check.push(Code::ExpressionNotCompiled, ErrorType::Internal, path, None, &message);
            } else {
                check.invalid(Code::ExpressionNotCompiled, path, text, &format!("compilation failed: {message}"));
            }
            None
        }
        Err(CompileFault::Undetermined(undetermined)) => {
            check.unsure(Code::ExpressionUndetermined, path, &undetermined.reason);
            None
        }
    }
}
