//! Plans the steps that run a checked tree. The plan has cel-go's shape, which decides what is
//! evaluated and what it costs.

mod optimize;

use std::sync::Arc;

use crate::Minor;
use crate::ast::{Expr, Fold, Kind, Purpose};
use crate::check::{Checked, Name};
use crate::decls::type_name;
use crate::library::{Message, Pattern};
use crate::types::Type;
use crate::value::Val;

/// A step of a plan. Each has the id of its node, which cost tracking uses.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Const(u32, Val),
    Attr(Attr),
    /// `has(a.b)`: an attribute whose last qualifier only tests.
    Has(u32, Attr),
    Logic {
        id: u32,
        and: bool,
        terms: Box<[Self; 2]>,
    },
    Equal {
        id: u32,
        negate: bool,
        terms: Box<[Self; 2]>,
    },
    Call(Box<Call>),
    /// `x in [constants]`.
    Member {
        id: u32,
        value: Box<Self>,
        set: Arc<Vec<Val>>,
    },
    /// `or` and `orValue` of optionals.
    OrElse {
        id: u32,
        unwrap: bool,
        terms: Box<[Self; 2]>,
    },
    List {
        id: u32,
        items: Vec<(Self, bool)>,
    },
    Map {
        id: u32,
        entries: Vec<(Self, Self, bool)>,
    },
    Message {
        id: u32,
        message: &'static Message,
        fields: Vec<(String, Self, bool)>,
    },
    Loop(Arc<Loop>),
}

/// A call of a function. Without an overload, the values choose one at run time.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: u32,
    pub(crate) function: String,
    pub(crate) overload: Option<&'static str>,
    pub(crate) args: Vec<Node>,
    pub(crate) pattern: Option<Arc<Pattern>>,
}

/// A loop over a range, planned from a fold.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) id: u32,
    pub(crate) var: String,
    pub(crate) var2: Option<String>,
    pub(crate) accu: String,
    pub(crate) purpose: Purpose,
    pub(crate) range: Node,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

/// A value that selections and indices are applied to.
#[derive(Debug, Clone)]
pub(crate) enum Attr {
    Variable {
        id: u32,
        name: String,
        outermost: bool,
        path: Vec<Arc<Qualifier>>,
    },
    Computed {
        id: u32,
        operand: Box<Node>,
        path: Vec<Arc<Qualifier>>,
    },
    Choice {
        id: u32,
        test: Box<Node>,
        yes: Box<Self>,
        no: Box<Self>,
    },
}

/// A selection or an index.
#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) id: u32,
    pub(crate) optional: bool,
    pub(crate) key: Key,
}

/// The key of a selection or an index.
#[derive(Debug)]
pub(crate) enum Key {
    Const(Val),
    /// The last name of `has()`.
    Test(Val),
    /// Another attribute; `computed` if it was created for an operand that is not an attribute.
    Attr {
        attr: Attr,
        computed: bool,
    },
}

/// Why there is no plan: it would fail at start, or that cannot be decided here.
#[derive(Debug)]
pub(crate) enum PlanFault {
    Refused(String),
    Beyond(String),
}

pub(crate) type Planning<T> = Result<T, PlanFault>;

impl Node {
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Const(id, _) | Self::Has(id, _) => *id,
            Self::Attr(attr) => attr.id(),
            Self::Logic { id, .. } | Self::Equal { id, .. } | Self::Member { id, .. } => *id,
            Self::OrElse { id, .. }
            | Self::List { id, .. }
            | Self::Map { id, .. }
            | Self::Message { id, .. } => *id,
            Self::Call(call) => call.id,
            Self::Loop(fold) => fold.id,
        }
    }
}

impl Attr {
    /// Returns the id of the last qualifier, or the attribute's own.
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Variable { id, path, .. } | Self::Computed { id, path, .. } => {
                path.last().map_or(*id, |q| q.id)
            }
            Self::Choice { id, yes, no, .. } => {
                let inner = yes.id();
                if inner == no.id() { inner } else { *id }
            }
        }
    }

    fn add_qualifier(&mut self, qualifier: &Arc<Qualifier>) {
        match self {
            Self::Variable { path, .. } | Self::Computed { path, .. } => {
                path.push(Arc::clone(qualifier))
            }
            Self::Choice { yes, no, .. } => {
                yes.add_qualifier(qualifier);
                no.add_qualifier(qualifier);
            }
        }
    }
}

/// Plans a checked tree.
pub(crate) fn plan_tree(e: &Expr, checked: &Checked, minor: Minor) -> Planning<Node> {
    Planner { checked, minor }.plan_expr(e)
}

fn undefined_fault(name: &str) -> PlanFault {
    PlanFault::Refused(format!("reference to undefined type: {name}"))
}

struct Planner<'c> {
    checked: &'c Checked,
    minor: Minor,
}

impl Planner<'_> {
    fn plan_expr(&self, e: &Expr) -> Planning<Node> {
        match &e.kind {
            Kind::Literal(value) => Ok(Node::Const(e.id, value.clone())),
            Kind::Ident(_) => self.plan_ident(e),
            Kind::Select { .. } if self.checked.names.contains_key(&e.id) => self.plan_ident(e),
            Kind::Select {
                operand,
                field,
                test,
            } => {
                let mut attr = to_attribute(self.plan_expr(operand)?);
                let name = Val::from(field.as_str());
                let key = if *test {
                    Key::Test(name)
                } else {
                    Key::Const(name)
                };
                attr.add_qualifier(&Arc::new(Qualifier {
                    id: e.id,
                    optional: false,
                    key,
                }));
                Ok(if *test {
                    Node::Has(e.id, attr)
                } else {
                    Node::Attr(attr)
                })
            }
            Kind::Call { target, args, .. } => self.plan_call(e, target.as_deref(), args),
            Kind::List(elements) => {
                let items = elements
                    .iter()
                    .map(|x| Ok((self.plan_expr(&x.value)?, x.optional)))
                    .collect::<Planning<Vec<_>>>()?;
                Ok(optimize::plan_list(e.id, items))
            }
            Kind::Map(entries) => {
                let mut planned = Vec::with_capacity(entries.len());
                for x in entries {
                    planned.push((
                        self.plan_expr(&x.key)?,
                        self.plan_expr(&x.value)?,
                        x.optional,
                    ));
                }
                Ok(optimize::plan_map(e.id, planned))
            }
            Kind::Message { name, fields } => {
                let message = Message::named(name.trim_start_matches('.'))
                    .ok_or_else(|| PlanFault::Beyond(format!("a message {name:?} is made")))?;
                let planned = fields
                    .iter()
                    .map(|x| Ok((x.name.clone(), self.plan_expr(&x.value)?, x.optional)))
                    .collect::<Planning<Vec<_>>>()?;
                Ok(Node::Message {
                    id: e.id,
                    message,
                    fields: planned,
                })
            }
            Kind::Fold(fold) => self.plan_fold(e, fold),
        }
    }

    fn plan_ident(&self, e: &Expr) -> Planning<Node> {
        Ok(match self.checked.names.get(&e.id) {
            Some(Name::Undefined(name)) => {
                return Err(undefined_fault(name));
            }
            Some(Name::Type(name)) => Node::Const(e.id, Val::Type((*name).into())),
            Some(Name::Number(number)) => Node::Const(e.id, Val::Int(*number)),
            // cel-go takes a variable whose type is a type for the name of that type.
            Some(Name::Variable { name, .. })
                if matches!(self.checked.types.get(&e.id), Some(Type::Of(_))) =>
            {
                match type_name(name, self.minor) {
                    Some((runtime, _)) => Node::Const(e.id, Val::Type(runtime.into())),
                    None => return Err(undefined_fault(name)),
                }
            }
            Some(Name::Variable { name, outermost }) => Node::Attr(Attr::Variable {
                id: e.id,
                name: name.clone(),
                outermost: *outermost,
                path: Vec::new(),
            }),
            None => Node::Const(e.id, Val::error("no such attribute")),
        })
    }

    fn plan_fold(&self, e: &Expr, fold: &Fold) -> Planning<Node> {
        Ok(Node::Loop(Arc::new(Loop {
            id: e.id,
            var: fold.var.clone(),
            var2: fold.var2.clone(),
            accu: fold.accu.clone(),
            purpose: fold.purpose,
            init: self.plan_expr(&fold.init)?,
            range: self.plan_expr(&fold.range)?,
            condition: self.plan_expr(&fold.condition)?,
            step: self.plan_expr(&fold.step)?,
            result: self.plan_expr(&fold.result)?,
        })))
    }

    fn plan_call(&self, e: &Expr, target: Option<&Expr>, args: &[Expr]) -> Planning<Node> {
        let callee = self
            .checked
            .calls
            .get(&e.id)
            .ok_or_else(|| PlanFault::Beyond("an unresolved call".to_owned()))?;
        let receiver = target.filter(|_| !callee.namespaced);
        let planned = receiver
            .into_iter()
            .chain(args)
            .map(|a| self.plan_expr(a))
            .collect::<Planning<Vec<_>>>()?;
        let overload = match callee.overloads.as_slice() {
            [one] => Some(*one),
            _ => None,
        };
        let id = e.id;
        let two = |planned: Vec<Node>| -> Planning<Box<[Node; 2]>> {
            planned
                .try_into()
                .map(Box::new)
                .map_err(|_| PlanFault::Beyond("an operator without two operands".to_owned()))
        };
        match callee.function.as_str() {
            f @ ("_&&_" | "_||_") => Ok(Node::Logic {
                id,
                and: f == "_&&_",
                terms: two(planned)?,
            }),
            f @ ("_==_" | "_!=_") => Ok(Node::Equal {
                id,
                negate: f == "_!=_",
                terms: two(planned)?,
            }),
            "_?_:_" => plan_choice(id, planned),
            f @ ("_[_]" | "_[?_]" | "_?._") => {
                let [operand, index] = *two(planned)?;
                index_into(id, operand, index, f != "_[_]")
            }
            f @ ("or" | "orValue") if planned.len() == 2 => Ok(Node::OrElse {
                id,
                unwrap: f == "orValue",
                terms: two(planned)?,
            }),
            f => optimize::plan_constant_call(Call {
                id,
                function: f.to_owned(),
                overload,
                args: planned,
                pattern: None,
            }),
        }
    }
}

fn to_attribute(node: Node) -> Attr {
    match node {
        Node::Attr(attr) => attr,
        other => Attr::Computed {
            id: other.id(),
            operand: Box::new(other),
            path: Vec::new(),
        },
    }
}

fn plan_choice(id: u32, planned: Vec<Node>) -> Planning<Node> {
    let three: Result<[Node; 3], _> = planned.try_into();
    let [test, yes, no] =
        three.map_err(|_| PlanFault::Beyond("a conditional without three parts".to_owned()))?;
    let (yes, no) = (Box::new(to_attribute(yes)), Box::new(to_attribute(no)));
    Ok(Node::Attr(Attr::Choice {
        id,
        test: Box::new(test),
        yes,
        no,
    }))
}

fn index_into(id: u32, operand: Node, index: Node, optional: bool) -> Planning<Node> {
    let mut attr = to_attribute(operand);
    let key = match index {
        Node::Const(_, value) => match value {
            Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Str(_) => {
                Key::Const(value)
            }
            other => {
                return Err(PlanFault::Refused(format!(
                    "invalid qualifier type: {}",
                    other.type_name()
                )));
            }
        },
        Node::Attr(attr) => Key::Attr {
            attr,
            computed: false,
        },
        other => Key::Attr {
            attr: Attr::Computed {
                id,
                operand: Box::new(other),
                path: Vec::new(),
            },
            computed: true,
        },
    };
    attr.add_qualifier(&Arc::new(Qualifier { id, optional, key }));
    Ok(Node::Attr(attr))
}
