//! The values that expressions work with, as in cel-go.

mod equal;
mod extent;
mod list;
mod map;

use std::fmt;
use std::sync::Arc;

pub(crate) use extent::Extent;
pub(crate) use list::List;
pub(crate) use map::{Lazy, Map};

use crate::library::{FormatName, Ip, Prefix, Quantity, Semver};
use crate::time::Timestamp;
use crate::types::Type;

/// A value at run time. Errors are values, because `||`, `&&` and loops continue after them.
#[derive(Debug, Clone)]
pub(crate) enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Arc<str>),
    Bytes(Arc<[u8]>),
    List(List),
    Map(Map),
    /// The variable itself from 1.34 on: a map that can be selected from and iterated, but is not a
    /// `map`.
    Lazy(Arc<Lazy>),
    Optional(Option<Arc<Self>>),
    Timestamp(Timestamp),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A type, by its runtime name.
    Type(Arc<str>),
    Url(Arc<super::library::Url>),
    Ip(Ip),
    Prefix(Prefix),
    Quantity(Quantity),
    Semver(Arc<Semver>),
    Format(FormatName),
    Err(Arc<str>),
    /// A value that depends on the order of a map, which is random.
    Random(Random),
}

/// What is known of a value that depends on a random order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Random {
    /// The largest size that it can have, for computing costs.
    pub(crate) size: u64,
    /// Whether it can be an error.
    pub(crate) fallible: bool,
}

/// More than any value that an expression can have within its cost.
const UNKNOWN_SIZE: u64 = 8 << 20;

impl Val {
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self::Err(message.into().into())
    }

    /// Creates a value that depends on a random order, and of which nothing is known.
    pub(crate) fn random() -> Self {
        Self::Random(Random {
            size: UNKNOWN_SIZE,
            fallible: true,
        })
    }

    /// Creates a value that is one of several, which depends on a random order.
    pub(crate) fn one_of<'v>(values: impl Iterator<Item = &'v Self> + Clone) -> Self {
        let mut others = values.clone();
        match others.next() {
            Some(first) if others.all(|other| first.same(other)) => first.clone(),
            _ => Self::Random(Random {
                size: values.map(Self::cost_size).max().unwrap_or(1),
                fallible: false,
            }),
        }
    }

    pub(crate) fn is_random(&self) -> bool {
        matches!(self, Self::Random(_))
    }

    /// Whether it can be an error because of a random order.
    pub(crate) fn may_fail(&self) -> bool {
        matches!(self, Self::Random(random) if random.fallible)
    }

    /// Whether a part of it depends on a random order.
    pub(crate) fn depends_on_order(&self) -> bool {
        match self {
            Self::Random(_) => true,
            Self::List(list) => {
                list.is_shuffled() || list.items().iter().any(Self::depends_on_order)
            }
            Self::Map(map) => map.entries().iter().any(|(_, v)| v.depends_on_order()),
            Self::Optional(Some(inner)) => inner.depends_on_order(),
            _ => false,
        }
    }

    /// Returns cel-go's `Value()`, if it is a Go string.
    pub(crate) fn go_text(&self) -> Option<Arc<str>> {
        match self {
            Self::Str(text) | Self::Type(text) => Some(Arc::clone(text)),
            Self::Optional(Some(inner)) => inner.go_text(),
            _ => None,
        }
    }

    /// The error of an operator or function that does not accept its arguments.
    pub(crate) fn no_overload() -> Self {
        Self::error("no such overload")
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Self::Err(_))
    }

    pub(crate) fn some(inner: Self) -> Self {
        Self::Optional(Some(Arc::new(inner)))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(List::new(items))
    }

    /// Returns the static type of a literal.
    pub(crate) fn static_type(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::Str(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            _ => Type::Error,
        }
    }

    /// Returns the name of its type at run time.
    pub(crate) fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Str(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Lazy(lazy) => lazy.type_name,
            Self::Optional(_) => "optional_type",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Prefix(_) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Err(_) => "error",
            Self::Random(_) => "random",
        }
    }

    /// Returns the size for computing costs: 1 for values without a size.
    pub(crate) fn cost_size(&self) -> u64 {
        let size = match self {
            Self::Str(s) => s.chars().count(),
            Self::Bytes(b) => b.len(),
            Self::List(l) => l.len(),
            Self::Map(m) => m.len(),
            Self::Lazy(l) => l.len(),
            Self::Ip(ip) => ip.size(),
            Self::Prefix(p) => p.size(),
            Self::Random(random) => return random.size,
            _ => 1,
        };
        size as u64
    }

    /// Whether a static type accepts this value at run time. Only the first entry of lists and maps
    /// is checked.
    pub(crate) fn fits(&self, t: &Type) -> bool {
        match t {
            Type::Dyn | Type::Any | Type::Param(_) => true,
            Type::List(of) => match self {
                Self::List(l) => l.first().is_none_or(|first| first.fits(of)),
                _ => false,
            },
            Type::Map(pair) => match self {
                Self::Map(m) => m
                    .first()
                    .is_none_or(|(k, v)| k.fits(&pair.0) && v.fits(&pair.1)),
                _ => false,
            },
            Type::Optional(_) => matches!(self, Self::Optional(_)),
            Type::Null => matches!(self, Self::Null),
            Type::Wrapper(of) => matches!(self, Self::Null) || self.fits(of),
            Type::Bool => matches!(self, Self::Bool(_)),
            Type::Int => matches!(self, Self::Int(_)),
            Type::Uint => matches!(self, Self::Uint(_)),
            Type::Double => matches!(self, Self::Double(_)),
            Type::String => matches!(self, Self::Str(_)),
            Type::Bytes => matches!(self, Self::Bytes(_)),
            Type::Timestamp => matches!(self, Self::Timestamp(_)),
            Type::Duration => matches!(self, Self::Duration(_)),
            Type::Of(_) => matches!(self, Self::Type(_)),
            Type::Opaque(name) | Type::Object(name) => self.type_name() == *name,
            Type::Error => false,
        }
    }

    /// Converts a value taken out of an optional, as releases before 1.37 do. It becomes the native
    /// value: its names are no longer unescaped, and a type becomes its name. `None` if that cannot
    /// be decided here.
    pub(crate) fn native(self) -> Option<Self> {
        match self {
            Self::List(l) => Some(Self::List(l.native())),
            Self::Map(m) => Some(Self::Map(m.native())),
            Self::Type(name) => Some(Self::Str(name)),
            Self::Optional(None) => Some(Self::Null),
            Self::Optional(Some(inner)) => (*inner).clone().native(),
            // The claims have no native value; an error takes its place.
            Self::Lazy(lazy) if lazy.type_name == "kubernetes.claims" => Some(Self::no_overload()),
            Self::Lazy(_) | Self::Url(_) | Self::Ip(_) | Self::Prefix(_) => None,
            Self::Quantity(_) | Self::Semver(_) | Self::Format(_) => None,
            other => Some(other),
        }
    }
}

impl From<String> for Val {
    fn from(text: String) -> Self {
        Self::Str(text.into())
    }
}

impl From<&str> for Val {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

/// Prints the value as Go does in error messages.
impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL_VALUE"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(n) | Self::Duration(n) => write!(f, "{n}"),
            Self::Uint(n) => write!(f, "{n}"),
            Self::Double(d) => f.write_str(&super::number::go_verb_g(*d)),
            Self::Str(s) | Self::Type(s) | Self::Err(s) => f.write_str(s),
            other => f.write_str(other.type_name()),
        }
    }
}
