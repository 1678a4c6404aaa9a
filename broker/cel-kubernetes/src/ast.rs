//! The syntax tree of a CEL expression, after macros are expanded.

use crate::value::Val;

/// The highest tree that is built. Higher ones are undetermined, so that no walk over a tree can
/// exhaust a stack: see [`crate::stack`].
pub(crate) const MAX_HEIGHT: u16 = 1200;

/// One node of the tree. `id` is unique in its tree; `at` is the offset, in code points, of the
/// token that names the node.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) id: u32,
    pub(crate) at: u32,
    pub(crate) height: u16,
    /// How many operators, selections and calls of methods nest in the text, which cel-go limits.
    pub(crate) nested: u16,
    pub(crate) kind: Kind,
}

/// The kind of a node, with its parts.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Literal(Val),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        function: String,
        args: Vec<Expr>,
    },
    List(Vec<Element>),
    Map(Vec<Entry>),
    Message {
        name: String,
        fields: Vec<Field>,
    },
    Fold(Box<Fold>),
}

/// An element of a list literal; `optional` is the `?` before it.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// An entry of a map literal.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A field of a message literal; `at` is the place of its colon.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) at: u32,
    pub(crate) name: String,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// The result of expanding a loop macro: a fold of a range into an accumulator.
#[derive(Debug, Clone)]
pub(crate) struct Fold {
    pub(crate) range: Expr,
    pub(crate) var: String,
    pub(crate) var2: Option<String>,
    pub(crate) accu: String,
    pub(crate) purpose: Purpose,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// What a fold computes, which decides how its result depends on the order of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The value of a name that the fold binds; its range is empty.
    Binding,
    /// Whether a test holds for all.
    All,
    /// Whether a test holds for one.
    Exists,
    /// The number of elements for which a test holds.
    Count,
    List,
    Map,
}

impl Expr {
    /// Returns the nodes directly below this one, in the order of the text.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => Vec::new(),
            Kind::Select { operand, .. } => vec![operand],
            Kind::Call { target, args, .. } => {
                target.iter().map(AsRef::as_ref).chain(args).collect()
            }
            Kind::List(elements) => elements.iter().map(|e| &e.value).collect(),
            Kind::Map(entries) => entries.iter().flat_map(|e| [&e.key, &e.value]).collect(),
            Kind::Message { fields, .. } => fields.iter().map(|f| &f.value).collect(),
            Kind::Fold(f) => vec![&f.range, &f.init, &f.condition, &f.step, &f.result],
        }
    }

    /// Returns every node of the tree, this one first.
    pub(crate) fn walk(&self) -> Vec<&Self> {
        let mut found = Vec::new();
        let mut open = vec![self];
        while let Some(next) = open.pop() {
            found.push(next);
            let mut children = next.children();
            children.reverse();
            open.extend(children);
        }
        found
    }

    /// Returns `a.b.c` as a name, if the node consists only of identifiers and selections.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = self;
        loop {
            match &at.kind {
                Kind::Ident(name) => {
                    parts.push(name.as_str());
                    parts.reverse();
                    return Some(parts.join("."));
                }
                Kind::Select {
                    operand,
                    field,
                    test: false,
                } => {
                    parts.push(field);
                    at = operand;
                }
                _ => return None,
            }
        }
    }
}
