//! The static types that the checker assigns to expressions.

use std::fmt;
use std::sync::Arc;

/// A static type of CEL.
#[derive(Debug, Clone)]
pub(crate) enum Type {
    Dyn,
    /// `google.protobuf.Any`, the type of a claim. It behaves like `dyn`, but no comprehension
    /// ranges over it.
    Any,
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Self>),
    Map(Arc<(Self, Self)>),
    Optional(Arc<Self>),
    /// `net.IP` and the like.
    Opaque(&'static str),
    /// A message type, `kubernetes.UserInfo` and the like.
    Object(&'static str),
    /// The type of a type, like `type(int)`.
    Of(Option<Arc<Self>>),
    Param(Param),
    /// The type of a message like `google.protobuf.Int64Value`: the type of its value, which can
    /// also be null.
    Wrapper(Arc<Self>),
}

/// Whether the types are exactly the same for cel-go, which does not tell a wrapper from the type of
/// its value.
impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self.value(), other.value()) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Opaque(a), Self::Opaque(b)) | (Self::Object(a), Self::Object(b)) => a == b,
            (Self::Of(a), Self::Of(b)) => a == b,
            (Self::Param(a), Self::Param(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl Eq for Type {}

/// A type parameter: of a declaration, or a fresh one that the checker created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Param {
    Declared(char),
    Fresh(u32),
}

impl Type {
    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// Returns the type of the value in a wrapper, or the type itself.
    pub(crate) fn value(&self) -> &Self {
        match self {
            Self::Wrapper(of) => of,
            _ => self,
        }
    }

    /// Whether every type is assignable.
    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || matches!(self, Self::Error)
    }

    /// Returns the type in an optional, and whether it was one.
    pub(crate) fn unwrapped(&self) -> (&Self, bool) {
        match self {
            Self::Optional(of) => (of, true),
            _ => (self, false),
        }
    }

    /// Returns the types that this one consists of.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::List(of) | Self::Optional(of) | Self::Of(Some(of)) => vec![of],
            Self::Map(pair) => vec![&pair.0, &pair.1],
            _ => Vec::new(),
        }
    }

    /// Reads a type as declarations write it: `list(int)`, `map(K, V)`, `A`.
    pub(crate) fn read(text: &'static str) -> Self {
        let inner = |prefix: &str| text.strip_prefix(prefix).and_then(|t| t.strip_suffix(')'));
        if let Some(of) = inner("list(") {
            return Self::list(Self::read(of));
        }
        if let Some(of) = inner("optional_type(") {
            return Self::optional(Self::read(of));
        }
        if let Some(of) = inner("wrapper(") {
            return Self::Wrapper(Arc::new(Self::read(of)));
        }
        if let Some(of) = inner("type(") {
            return Self::Of(Some(Arc::new(Self::read(of))));
        }
        if let Some((key, value)) = inner("map(").and_then(|t| t.split_once(", ")) {
            return Self::map(Self::read(key), Self::read(value));
        }
        match text {
            "dyn" => Self::Dyn,
            "any" => Self::Any,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "timestamp" => Self::Timestamp,
            "duration" => Self::Duration,
            "type" => Self::Of(None),
            "net.IP" | "net.CIDR" => Self::Opaque(text),
            _ => match text.chars().next() {
                Some(letter) if text.len() == 1 => Self::Param(Param::Declared(letter)),
                _ => Self::Object(text),
            },
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(pair) => write!(f, "map({}, {})", pair.0, pair.1),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Wrapper(of) => write!(f, "wrapper({of})"),
            Self::Opaque(name) | Self::Object(name) => f.write_str(name),
            Self::Of(Some(of)) => write!(f, "type({of})"),
            Self::Of(None) => f.write_str("type"),
            Self::Param(Param::Declared(letter)) => write!(f, "{letter}"),
            Self::Param(Param::Fresh(n)) => write!(f, "_var{n}"),
        }
    }
}
