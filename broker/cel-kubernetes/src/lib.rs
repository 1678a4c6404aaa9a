//! Compiles and evaluates CEL as kube-apiserver does in an AuthenticationConfiguration.
//!
//! An [`Environment`] contains what one Kubernetes minor release declares. It compiles a text into
//! an [`Expression`], or says why the API server refuses it. An expression is evaluated on the
//! claims of a token or on a user. A result that may differ from the API server's is
//! [`Undetermined`]. The length of a text, the size of its tree, the work of an evaluation and all
//! recursion are bounded.
//!
//! ```
//! use keyferry_cel_kubernetes::{Environment, Input, Minor, Scope, Value};
//!
//! let claims = serde_json::json!({"sub": "alice", "groups": ["dev", "ops"]});
//! let expression = Environment::new(Minor::V1_33)
//!     .compile(Scope::Claims, "'ops' in claims.groups ? claims.sub : ''")?;
//!
//! let value = expression.evaluate(Input::Claims(claims.as_object().unwrap()))?;
//! assert_eq!(value, Value::String("alice".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The tests replay what kube-apiserver's own packages returned for each minor release: types,
//! values, errors and costs of some thousand expressions, in `src/tests/observed.tsv`. To record
//! another expression, add a line there with only its scope and its text. This command needs Go,
//! and asks the packages about every line:
//!
//! ```text
//! KEYFERRY_WRITE_COPIES=1 cargo test --workspace --test suites -- differential::the_recorded
//! ```

mod ast;
mod check;
mod cost;
mod decls;
mod escape;
mod eval;
mod input;
mod lexer;
mod library;
mod literal;
mod macros;
mod minor;
mod number;
mod outcome;
mod parser;
mod plan;
mod source;
mod stack;
mod time;
mod types;
mod unify;
mod validate;
mod value;

use std::ops::RangeInclusive;
use std::sync::Arc;

pub use input::{ClaimError, Input, UserInfo};
pub use minor::{Minor, UnknownMinor};
pub use outcome::{CompileFault, EvaluateFault, List, Undetermined, UndeterminedKind, Value};

use ast::{Expr, Kind};
use check::Outcome;
use cost::RANDOM_ORDER;
use decls::Functions;
use eval::{Orders, Runner, Stop};
use types::Type;

/// The longest expression that the API server compiles, in code points.
const MAX_CODE_POINTS: usize = 100_000;

/// The shortest text that can have a tree higher than [`stack::MAX_PLAIN_HEIGHT`], in bytes.
const DEEP_TEXT_BYTES: usize = 120;

/// The most orders of maps in which an expression is evaluated, if what holds in every order does
/// not decide.
const MAX_RUNS: u32 = 300;

/// The most work of all these evaluations together, in steps.
const MAX_STEPS_OF_RUNS: u64 = 300_000;

/// The variable that an expression can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `claims`, a map from string to any.
    Claims,
    /// `user`, an object with `username`, `uid`, `groups` and `extra`.
    User,
}

impl Scope {
    fn variable(self) -> &'static str {
        match self {
            Self::Claims => "claims",
            Self::User => "user",
        }
    }
}

/// The functions and rules of one Kubernetes minor release.
#[derive(Debug, Clone)]
pub struct Environment {
    minor: Minor,
    functions: Arc<Functions>,
}

impl Environment {
    /// Creates the environment of a minor release.
    #[must_use]
    pub fn new(minor: Minor) -> Self {
        Self {
            minor,
            functions: Arc::new(Functions::for_minor(minor)),
        }
    }

    /// Compiles an expression, as the API server does when it loads its configuration.
    ///
    /// # Errors
    ///
    /// If the API server refuses it, or if that cannot be decided here.
    pub fn compile(&self, scope: Scope, text: &str) -> Result<Expression, CompileFault> {
        stack::run_on_stack(text.len() >= DEEP_TEXT_BYTES, || {
            self.compile_here(scope, text)
        })
        .unwrap_or_else(|| {
            Err(CompileFault::Undetermined(Undetermined::new(
                text, NO_STACK,
            )))
        })
    }

    fn compile_here(&self, scope: Scope, text: &str) -> Result<Expression, CompileFault> {
        let beyond = |reason: &str| CompileFault::Undetermined(Undetermined::new(text, reason));
        let size = text.chars().count();
        if size > MAX_CODE_POINTS {
            return Err(CompileFault::Refused {
                message: format!(
                    "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, \
                     limit {MAX_CODE_POINTS}"
                ),
            });
        }
        let chars: Vec<char> = text.chars().collect();
        let refused = |issues: Vec<check::Issue>| CompileFault::Refused {
            message: source::print_issues(&chars, &issues),
        };
        let parsed = parser::parse_expression(&chars, self.minor).map_err(|fault| match fault {
            parser::Unparsed::Beyond(reason) => beyond(reason),
            parser::Unparsed::Refused(issues) => refused(issues),
        })?;
        let variable = match scope {
            Scope::Claims => Type::map(Type::String, Type::Any),
            Scope::User => Type::Object("kubernetes.UserInfo"),
        };
        let checked = match check::check(
            &parsed.root,
            &self.functions,
            (scope.variable(), variable),
            self.minor,
        ) {
            Outcome::Fine(checked) => checked,
            Outcome::Refused(issues) => return Err(refused(issues)),
            Outcome::Beyond(reason) => return Err(beyond(&reason)),
        };
        let issues = validate::validate(&parsed.root, &checked, self.minor)
            .map_err(|reason| beyond(&reason))?;
        if !issues.is_empty() {
            return Err(refused(issues));
        }
        let plan =
            plan::plan_tree(&parsed.root, &checked, self.minor).map_err(|fault| match fault {
                plan::PlanFault::Refused(message) => CompileFault::Refused {
                    message: format!("program instantiation failed: {message}"),
                },
                plan::PlanFault::Beyond(reason) => beyond(&reason),
            })?;
        let output = checked
            .types
            .get(&parsed.root.id)
            .cloned()
            .unwrap_or(Type::Dyn);
        Ok(Expression {
            text: text.to_owned(),
            scope,
            minor: self.minor,
            functions: Arc::clone(&self.functions),
            uses_accumulators: parsed.uses_accumulators,
            tree: Arc::new(Tree {
                deep: parsed.root.height > stack::MAX_PLAIN_HEIGHT,
                parts: Some((parsed.root, plan)),
            }),
            output,
        })
    }
}

/// A compiled expression, ready to be evaluated.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    scope: Scope,
    minor: Minor,
    functions: Arc<Functions>,
    tree: Arc<Tree>,
    /// Whether it can use the accumulators of its loops.
    uses_accumulators: bool,
    output: Type,
}

/// Why a text that nests deep is undetermined if the system gives no stack for it.
const NO_STACK: &str = "no thread could be started for an expression that nests deep";

/// A syntax tree and its plan.
#[derive(Debug)]
struct Tree {
    /// Whether it is too high for the stack of any thread.
    deep: bool,
    /// `None` only while it is dropped.
    parts: Option<(Expr, plan::Node)>,
}

impl Drop for Tree {
    /// Drops the parts on a stack that is large enough for the recursion.
    fn drop(&mut self) {
        let parts = self.parts.take();
        let _ = stack::run_on_stack(self.deep, move || drop(parts));
    }
}

impl Expression {
    /// The source text of the expression.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether its static type is exactly `bool`, as rules must be.
    #[must_use]
    pub fn is_bool(&self) -> bool {
        matches!(self.output, Type::Bool)
    }

    fn nodes(&self) -> Vec<&Expr> {
        let parts = self.tree.parts.as_ref();
        parts.map(|(root, _)| root.walk()).unwrap_or_default()
    }

    /// Its static type, in cel-go's notation.
    #[cfg(test)]
    fn output_type(&self) -> String {
        let shown = self.output.to_string();
        if self.minor == Minor::V1_30 {
            shown.replace("optional_type", "optional")
        } else {
            shown
        }
    }

    /// Whether it selects a field of a variable, as the apiserver's rule on `claims.email` checks.
    /// A dot counts, also in `has()`, `.?`, calls, lists and macros; an index does not.
    #[must_use]
    pub fn selects(&self, operand: &str, field: &str) -> bool {
        let is_operand = |e: &Expr| matches!(&e.kind, Kind::Ident(name) if name.trim_start_matches('.') == operand);
        self.nodes().into_iter().any(|e| match &e.kind {
            Kind::Select {
                operand,
                field: name,
                ..
            } => name == field && is_operand(operand),
            Kind::Call { function, args, .. } if function == "_?._" => match args.as_slice() {
                [
                    object,
                    Expr {
                        kind: Kind::Literal(value::Val::Str(name)),
                        ..
                    },
                ] => **name == *field && is_operand(object),
                _ => false,
            },
            _ => false,
        })
    }

    /// Whether an evaluation may read a field of a variable. False only if every use of the
    /// variable names another field.
    #[must_use]
    pub fn may_use(&self, operand: &str, field: &str) -> bool {
        let is_operand = |e: &Expr| matches!(&e.kind, Kind::Ident(name) if name.trim_start_matches('.') == operand);
        // A longer name may be the escaped form of this one.
        let other = |name: &str| name != field && !name.contains("__");
        let mut named = 0;
        let nodes = self.nodes();
        for e in &nodes {
            named += usize::from(match &e.kind {
                Kind::Select { operand, field, .. } => is_operand(operand) && other(field),
                Kind::Call {
                    target: None,
                    function,
                    args,
                } if matches!(function.as_str(), "_?._" | "_[_]" | "_[?_]") => {
                    let constant = |e: &Expr| matches!(&e.kind, Kind::Literal(value::Val::Str(name)) if other(name));
                    matches!(args.as_slice(), [object, name] if is_operand(object) && constant(name))
                }
                _ => false,
            });
        }
        named < nodes.into_iter().filter(|e| is_operand(e)).count()
    }

    /// Evaluates the expression on claims or on a user.
    ///
    /// # Errors
    ///
    /// If the evaluation fails in the API server, exceeds its cost limit, or cannot be decided
    /// here.
    pub fn evaluate(&self, input: Input<'_>) -> Result<Value, EvaluateFault> {
        self.evaluate_with_cost(input).0
    }

    /// Evaluates the expression and returns the cost in the API server's units: the least and the
    /// most that it can be, as it can depend on the order of a map. The API server's limit is
    /// 1,000,000.
    fn evaluate_with_cost(
        &self,
        input: Input<'_>,
    ) -> (Result<Value, EvaluateFault>, RangeInclusive<u64>) {
        let beyond =
            |reason: &str| EvaluateFault::Undetermined(Undetermined::new(&self.text, reason));
        let variable = match input::input_variable(input, self.scope, self.minor) {
            Ok(variable) => variable,
            Err(reason) => return (Err(beyond(reason)), 0..=0),
        };
        stack::run_on_stack(self.tree.deep, || self.evaluate_here(variable))
            .unwrap_or_else(|| (Err(beyond(NO_STACK)), 0..=0))
    }

    fn evaluate_here(
        &self,
        variable: value::Val,
    ) -> (Result<Value, EvaluateFault>, RangeInclusive<u64>) {
        let first = self.run(variable.clone(), None);
        match first.result {
            Err(EvaluateFault::Undetermined(_)) if first.unordered > 1 => {
                let every = self.run_in_every_order(&variable).unwrap_or(first);
                (every.result, every.cost)
            }
            result => (result, first.cost),
        }
    }

    /// Evaluates the expression once for every order of the maps that it iterates. `None` if there
    /// are too many, or if the results differ.
    fn run_in_every_order(&self, variable: &value::Val) -> Option<Outcomes> {
        let mut orders = Orders::default();
        let mut whole: Option<Outcomes> = None;
        let mut steps = 0_u64;
        for _ in 0..MAX_RUNS {
            let run = self.run(variable.clone(), Some(&mut orders));
            steps = steps.saturating_add(run.steps);
            let undetermined = matches!(run.result, Err(EvaluateFault::Undetermined(_)));
            let differs = |whole: &Outcomes| !outcome::are_alike(&whole.result, &run.result);
            if undetermined || whole.as_ref().is_some_and(differs) || steps > MAX_STEPS_OF_RUNS {
                return None;
            }
            match &mut whole {
                None => whole = Some(run),
                Some(whole) => {
                    let least = *whole.cost.start().min(run.cost.start());
                    let most = *whole.cost.end().max(run.cost.end());
                    whole.cost = least..=most;
                }
            }
            if !orders.advance_order() {
                return whole;
            }
        }
        None
    }

    fn run(&self, variable: value::Val, orders: Option<&mut Orders>) -> Outcomes {
        let variable = (self.scope.variable(), variable);
        let mut runner = Runner::new(self.minor, &self.functions, variable, orders);
        runner.uses_accumulators = self.uses_accumulators;
        let result = match &self.tree.parts {
            Some((_, plan)) => runner.run_plan(plan),
            None => Err(Stop::Beyond(NO_STACK.to_owned())),
        };
        let beyond =
            |reason: &str| EvaluateFault::Undetermined(Undetermined::new(&self.text, reason));
        let failed = |message: String| EvaluateFault::Failed {
            exact: runner.unordered <= 1 && outcome::is_compared(&message),
            message,
        };
        let result = match result {
            Err(Stop::Cost) => Err(EvaluateFault::CostLimit),
            Err(Stop::Panic(message)) => Err(failed(message)),
            Err(Stop::Beyond(reason)) => Err(beyond(&reason)),
            Ok(value::Val::Err(message)) if message.contains(input::TOO_DEEP) => Err(
                EvaluateFault::Undetermined(Undetermined::claim_too_deep(&self.text)),
            ),
            Ok(value::Val::Err(message)) => Err(failed(message.to_string())),
            Ok(value) if value.depends_on_order() => Err(beyond(RANDOM_ORDER)),
            Ok(value) => {
                Value::from_val(&value, 0).ok_or_else(|| beyond("the result nests too deeply"))
            }
        };
        Outcomes {
            result,
            unordered: runner.unordered,
            cost: runner
                .tracker
                .cost()
                .saturating_sub(runner.tracker.uncertain_cost())
                ..=runner.tracker.cost(),
            steps: runner.tracker.counted_steps(),
        }
    }
}

/// The outcomes of one run.
struct Outcomes {
    result: Result<Value, EvaluateFault>,
    /// The size of the largest map that was iterated.
    unordered: usize,
    cost: RangeInclusive<u64>,
    /// The work of the run.
    steps: u64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
