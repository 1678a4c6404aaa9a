//! The public results of compiling and evaluating an expression.

use crate::value::Val;

/// A result that may differ from the API server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undetermined {
    /// The source text of the expression.
    pub expression: String,
    /// The part of it that cannot be decided here.
    pub reason: String,
    /// The kind of that part.
    pub kind: UndeterminedKind,
}

/// The kind of what cannot be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndeterminedKind {
    /// The result depends on a claim that nests too deep: a [`ClaimError::TooDeep`].
    ///
    /// [`ClaimError::TooDeep`]: crate::ClaimError::TooDeep
    ClaimTooDeep,
    /// The expression, or its evaluation, uses something that is not modelled here.
    Expression,
}

impl Undetermined {
    pub(crate) fn new(expression: &str, reason: &str) -> Self {
        Self {
            expression: expression.to_owned(),
            reason: reason.to_owned(),
            kind: UndeterminedKind::Expression,
        }
    }

    pub(crate) fn claim_too_deep(expression: &str) -> Self {
        Self {
            expression: expression.to_owned(),
            reason: "a claim nests too deep to be evaluated here".to_owned(),
            kind: UndeterminedKind::ClaimTooDeep,
        }
    }
}

/// Why an expression does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileFault {
    /// The API server refuses the expression.
    #[error("{message}")]
    Refused {
        /// The reason, in cel-go's words if it is a frequent one. It starts with `ERROR: <input>`
        /// if the text is wrong, and with `program instantiation failed` if a constant in it is.
        message: String,
    },
    /// Whether the API server accepts the expression cannot be decided here.
    #[error("not decided: {}", .0.reason)]
    Undetermined(Undetermined),
}

/// Why an evaluation returns no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateFault {
    /// The evaluation fails with an error.
    #[error("{message}")]
    Failed {
        /// The reason, in cel-go's words if it is a frequent one.
        message: String,
        /// Whether every run in the API server fails with exactly this message. Other messages
        /// contain names of Go's types or functions, or texts of its libraries. A loop over a map
        /// fails at whichever entry comes first, which is random.
        exact: bool,
    },
    /// The evaluation costs more than the API server allows.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The result cannot be decided here.
    #[error("not decided: {}", .0.reason)]
    Undetermined(Undetermined),
}

/// Whether a message is of a kind whose text was compared with the API server's.
pub(crate) fn is_compared(message: &str) -> bool {
    const WHOLE_MESSAGES: [&str; 5] = [
        "division by zero",
        "modulus by zero",
        "integer overflow",
        "unsigned integer overflow",
        "optional.none() dereference",
    ];
    const MESSAGE_BEGINNINGS: [&str; 4] = [
        "type conversion error from 'string' to '",
        "index out of range: ",
        "invalid substring range. start: ",
        "cannot slice(",
    ];
    let plain = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-./+".contains(&byte))
    };
    WHOLE_MESSAGES.contains(&message)
        || MESSAGE_BEGINNINGS
            .iter()
            .any(|beginning| message.starts_with(beginning))
        || message.strip_prefix("no such key: ").is_some_and(plain)
        || message
            .strip_prefix("index out of bounds: ")
            .is_some_and(plain)
        || message.strip_prefix("claim ").is_some_and(|rest| {
            rest.contains(" failed to unmarshal: json: cannot unmarshal number ")
        })
}

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// A bool.
    Bool(bool),
    /// An int.
    Int(i64),
    /// A uint.
    Uint(u64),
    /// A double.
    Double(f64),
    /// A string.
    String(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(List),
    /// A map, in no particular order.
    Map(Vec<(Self, Self)>),
    /// An optional value.
    Optional(Option<Box<Self>>),
    /// A timestamp: seconds since 1970 and nanoseconds.
    Timestamp {
        /// Seconds since 1970.
        seconds: i64,
        /// Nanoseconds of the second.
        nanos: i64,
    },
    /// A duration in nanoseconds.
    Duration(i64),
    /// A type, by name.
    Type(String),
    /// A value of one of Kubernetes' own types, by the name of the type.
    Opaque(String),
}

/// A list.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    items: Vec<Value>,
    strings: bool,
}

impl List {
    /// The elements, in order.
    #[must_use]
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    /// Whether the list is `[]string` inside the API server, as the results of `split` and
    /// `findAll` are. The API server refuses such a list as the value of groups or extra.
    #[must_use]
    pub fn is_go_strings(&self) -> bool {
        self.strings
    }
}

impl Value {
    /// Returns the bool, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns the text, if it is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    /// Converts the value of a run. `None` if it nests too deeply.
    pub(crate) fn from_val(value: &Val, depth: u32) -> Option<Self> {
        if depth > 300 {
            return None;
        }
        let inner = |v: &Val| Self::from_val(v, depth + 1);
        Some(match value {
            Val::Null => Self::Null,
            Val::Bool(b) => Self::Bool(*b),
            Val::Int(n) => Self::Int(*n),
            Val::Uint(n) => Self::Uint(*n),
            Val::Double(d) => Self::Double(*d),
            Val::Str(s) => Self::String(s.to_string()),
            Val::Bytes(b) => Self::Bytes(b.to_vec()),
            Val::List(l) => Self::List(List {
                items: l.items().iter().map(inner).collect::<Option<_>>()?,
                strings: l.is_go_strings(),
            }),
            Val::Map(m) => {
                let entries = m
                    .entries()
                    .iter()
                    .map(|(k, v)| Some((inner(k)?, inner(v)?)));
                Self::Map(entries.collect::<Option<_>>()?)
            }
            Val::Optional(None) => Self::Optional(None),
            Val::Optional(Some(v)) => Self::Optional(Some(Box::new(inner(v)?))),
            Val::Timestamp(t) => Self::Timestamp {
                seconds: t.seconds,
                nanos: t.nanos,
            },
            Val::Duration(n) => Self::Duration(*n),
            Val::Type(name) => Self::Type(name.to_string()),
            other => Self::Opaque(other.type_name().to_owned()),
        })
    }
}

/// Whether two runs have the same result, apart from the text of an error and the order within
/// maps.
pub(crate) fn are_alike(
    a: &Result<Value, EvaluateFault>,
    b: &Result<Value, EvaluateFault>,
) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => is_same(a, b),
        (Err(a), Err(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
        _ => false,
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(k, v)| b.iter().any(|(l, w)| is_same(k, l) && is_same(v, w)))
        }
        (Value::List(a), Value::List(b)) => {
            a.items.len() == b.items.len()
                && a.items.iter().zip(&b.items).all(|(a, b)| is_same(a, b))
        }
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => is_same(a, b),
        (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits() || a == b,
        _ => a == b,
    }
}
