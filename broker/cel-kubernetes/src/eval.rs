//! Runs a plan.

mod attribute;
mod call;
mod fold;
mod order;

pub(crate) use order::Orders;

use crate::Minor;
use crate::cost::Tracker;
use crate::decls::Functions;
use crate::library::Message;
use crate::plan::Node;
use crate::value::{Map, Random, Val};

/// Why a run ends without a value or an error value.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The cost is certain to exceed the limit.
    Cost,
    /// cel-go panics. No operator absorbs a panic, so the run fails with it.
    Panic(String),
    /// The result cannot be decided here.
    Beyond(String),
}

pub(crate) type Run<T> = Result<T, Stop>;

/// One run of a plan.
///
/// Go iterates a map in another order each time. A run without `orders` computes what holds in
/// every order: a value that depends on one is [`Val::Random`], and a list with the entries of a
/// map is in an unknown order. A run with `orders` uses one order for each loop.
pub(crate) struct Runner<'r> {
    pub(crate) minor: Minor,
    pub(crate) functions: &'r Functions,
    pub(crate) variable: (&'static str, Val),
    pub(crate) orders: Option<&'r mut Orders>,
    /// Whether the expression can use the accumulators of its loops.
    pub(crate) uses_accumulators: bool,
    /// The size of the largest map that was iterated. Its order is unknown if it has more than one
    /// entry.
    pub(crate) unordered: usize,
    pub(crate) tracker: Tracker,
    frames: Vec<fold::Frame>,
}

impl<'r> Runner<'r> {
    pub(crate) fn new(
        minor: Minor,
        functions: &'r Functions,
        variable: (&'static str, Val),
        orders: Option<&'r mut Orders>,
    ) -> Self {
        Self {
            minor,
            functions,
            variable,
            orders,
            uses_accumulators: false,
            unordered: 0,
            tracker: Tracker::default(),
            frames: Vec::new(),
        }
    }

    /// Runs a plan from the outermost scope.
    pub(crate) fn run_plan(&mut self, node: &Node) -> Run<Val> {
        self.eval_node(node, None)
    }

    /// Evaluates a step in a scope, which is the index of its innermost frame.
    fn eval_node(&mut self, node: &Node, scope: Option<usize>) -> Run<Val> {
        match node {
            Node::Const(id, value) => {
                self.tracker.push_value(*id, value.clone())?;
                Ok(value.clone())
            }
            Node::Attr(attr) => self.eval_attribute(attr, scope),
            Node::Has(id, attr) => self.eval_has(*id, attr, scope),
            Node::Logic { id, and, terms } => self.eval_logic(*id, *and, terms, scope),
            Node::Equal { id, negate, terms } => self.eval_equality(*id, *negate, terms, scope),
            Node::Call(call) => self.eval_call(call, scope),
            Node::Member { id, value, set } => self.eval_membership(*id, value, set, scope),
            Node::OrElse { id, unwrap, terms } => self.eval_or_else(*id, *unwrap, terms, scope),
            Node::List { id, items } => {
                let made = self.eval_list(items, scope)?;
                let ids: Vec<u32> = items.iter().map(|(n, _)| n.id()).collect();
                self.tracker
                    .count_construction(*id, &ids, 10, made.clone())?;
                Ok(made)
            }
            Node::Map { id, entries } => {
                let made = self.eval_map(entries, scope)?;
                let ids: Vec<u32> = entries
                    .iter()
                    .flat_map(|(k, v, _)| [k.id(), v.id()])
                    .collect();
                self.tracker
                    .count_construction(*id, &ids, 30, made.clone())?;
                Ok(made)
            }
            Node::Message {
                id,
                message,
                fields,
            } => {
                let made = self.eval_message(message, fields, scope)?;
                let ids: Vec<u32> = fields.iter().map(|(_, n, _)| n.id()).collect();
                self.tracker
                    .count_construction(*id, &ids, 40, made.clone())?;
                Ok(made)
            }
            Node::Loop(fold) => self.eval_fold(fold, scope),
        }
    }

    /// Evaluates `value in [...]` with a list of constants.
    fn eval_membership(
        &mut self,
        id: u32,
        value: &Node,
        set: &[Val],
        scope: Option<usize>,
    ) -> Run<Val> {
        let value = self.eval_node(value, scope)?;
        let answer = match value {
            Val::Err(_) => value,
            Val::Random(_) => Val::Random(Random {
                size: 1,
                fallible: true,
            }),
            Val::Bytes(_) => return Err(unhashable_error("types.Bytes")),
            Val::Semver(_) => return Err(unhashable_error("cel.Semver")),
            // Before 1.32 formats are stored by reference, which Go can hash.
            Val::Format(_) if self.minor >= Minor::V1_32 => {
                return Err(unhashable_error("cel.Format"));
            }
            _ => Val::Bool({
                self.tracker.count_steps(set.len() as u64 / 32)?;
                set.iter().any(|known| known.identical(&value))
            }),
        };
        self.tracker.push_value(id, answer.clone())?;
        Ok(answer)
    }

    fn eval_or_else(
        &mut self,
        id: u32,
        unwrap: bool,
        terms: &[Node; 2],
        scope: Option<usize>,
    ) -> Run<Val> {
        let [left, right] = terms;
        let answer = match self.eval_node(left, scope)? {
            Val::Optional(None) => self.eval_node(right, scope)?,
            Val::Optional(Some(inner)) if unwrap => (*inner).clone(),
            Val::Random(_) => {
                self.run_doubtful(true, |run| run.eval_node(right, scope))?;
                Val::random()
            }
            // Up to 1.36 any other value passes through.
            other
                if self.minor >= Minor::V1_37
                    && !other.is_error()
                    && !matches!(other, Val::Optional(_)) =>
            {
                Val::error("no such overload")
            }
            other => other,
        };
        self.tracker.push_value(id, answer.clone())?;
        Ok(answer)
    }

    fn eval_logic(
        &mut self,
        id: u32,
        and: bool,
        terms: &[Node; 2],
        scope: Option<usize>,
    ) -> Run<Val> {
        let mut failure = None;
        let mut decided = None;
        let mut random = None;
        for term in terms {
            match self.run_doubtful(random.is_some(), |run| run.eval_node(term, scope))? {
                Val::Random(_) => {
                    random = Some(Val::Random(Random {
                        size: 1,
                        fallible: true,
                    }));
                }
                Val::Bool(b) if b != and => {
                    decided = Some(Val::Bool(b));
                    break;
                }
                Val::Bool(_) => {}
                error @ Val::Err(_) => failure = failure.or(Some(error)),
                _ => failure = failure.or_else(|| Some(Val::no_overload())),
            }
        }
        let answer = decided.or(random).or(failure).unwrap_or(Val::Bool(and));
        self.tracker.drop_ids(&[terms[0].id(), terms[1].id()])?;
        self.tracker.push_value(id, answer.clone())?;
        Ok(answer)
    }

    fn eval_equality(
        &mut self,
        id: u32,
        negate: bool,
        terms: &[Node; 2],
        scope: Option<usize>,
    ) -> Run<Val> {
        let [left, right] = terms;
        let (l, r) = (self.eval_node(left, scope)?, self.eval_node(right, scope)?);
        let answer = match (&l, &r) {
            (Val::Err(_), _) => l,
            (_, Val::Err(_)) => r,
            _ => match l.equals(&r) {
                answer if answer.is_random() || !negate => answer,
                answer => Val::Bool(!answer.is_true()),
            },
        };
        let function = if negate { "_!=_" } else { "_==_" };
        let overload = if negate { "not_equals" } else { "equals" };
        self.tracker.count_call(
            self.minor,
            id,
            (function, Some(overload)),
            &[left.id(), right.id()],
            &answer,
        )?;
        Ok(answer)
    }

    fn eval_list(&mut self, items: &[(Node, bool)], scope: Option<usize>) -> Run<Val> {
        let mut made = Vec::with_capacity(items.len());
        let mut random = false;
        for (item, optional) in items {
            match self.run_doubtful(random, |run| run.eval_node(item, scope))? {
                error @ Val::Err(_) => return Ok(error),
                value if value.may_fail() || (*optional && value.is_random()) => random = true,
                Val::Optional(inner) if *optional => made.extend(inner.as_deref().cloned()),
                other if *optional => {
                    return Ok(Val::error(format!(
                        "cannot initialize optional list element from non-optional value {other}"
                    )));
                }
                other => made.push(other),
            }
        }
        Ok(if random {
            Val::random()
        } else {
            Val::list(made)
        })
    }

    fn eval_message(
        &mut self,
        message: &Message,
        fields: &[(String, Node, bool)],
        scope: Option<usize>,
    ) -> Run<Val> {
        let mut set: Vec<(String, Val)> = Vec::with_capacity(fields.len());
        for (name, value, optional) in fields {
            let value = match self.eval_node(value, scope)? {
                error @ Val::Err(_) => return Ok(error),
                random @ Val::Random(_) => return Ok(random),
                Val::Optional(Some(inner)) if *optional => (*inner).clone(),
                Val::Optional(None) if *optional => {
                    set.retain(|(known, _)| known != name);
                    continue;
                }
                other if *optional => {
                    return Ok(Val::error(format!(
                        "cannot initialize optional entry '{name}' from non-optional value {other}"
                    )));
                }
                other => other,
            };
            set.retain(|(known, _)| known != name);
            set.push((name.clone(), value));
        }
        message.make(&set).map_err(Stop::Beyond)
    }

    /// Runs steps, which some orders of the maps may leave out if `doubtful`.
    fn run_doubtful<T>(&mut self, doubtful: bool, run: impl FnOnce(&mut Self) -> Run<T>) -> Run<T> {
        if !doubtful {
            return run(self);
        }
        self.tracker.set_doubtful(true);
        let result = run(self);
        self.tracker.set_doubtful(false);
        result
    }

    fn eval_map(&mut self, entries: &[(Node, Node, bool)], scope: Option<usize>) -> Run<Val> {
        let mut made = Map::built();
        let mut random = false;
        for (key, value, optional) in entries {
            let key = self.run_doubtful(random, |run| run.eval_node(key, scope))?;
            if key.is_error() {
                return Ok(key);
            }
            random |= key.is_random();
            // The key is compared with each before it.
            self.tracker.count_steps(made.len() as u64 / 32)?;
            let value = match self.run_doubtful(random, |run| run.eval_node(value, scope))? {
                error @ Val::Err(_) => return Ok(error),
                value if value.may_fail() || (*optional && value.is_random()) => {
                    random = true;
                    continue;
                }
                Val::Optional(Some(inner)) if *optional => (*inner).clone(),
                Val::Optional(None) if *optional => {
                    made.remove(&key);
                    continue;
                }
                other if *optional => {
                    let message = format!(
                        "cannot initialize optional entry '{key}' from non-optional value {other}"
                    );
                    return Ok(Val::error(message));
                }
                other => other,
            };
            match key {
                Val::Bool(_)
                | Val::Int(_)
                | Val::Uint(_)
                | Val::Str(_)
                | Val::Double(_)
                | Val::Null
                | Val::Duration(_) => made.put(key, value),
                Val::Random(_) => {}
                Val::Bytes(_) => return Err(unhashable_error("types.Bytes")),
                _ => return Err(Stop::Beyond("a map key that is no scalar".to_owned())),
            }
        }
        Ok(if random {
            Val::random()
        } else {
            Val::Map(made)
        })
    }
}

/// Go cannot hash bytes, nor types that contain a slice or a function.
fn unhashable_error(name: &str) -> Stop {
    Stop::Panic(format!(
        "internal error: runtime error: hash of unhashable type {name}"
    ))
}
