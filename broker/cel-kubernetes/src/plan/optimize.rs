//! Computes at planning time what is constant: aggregates and conversions, sets and patterns.

use std::sync::Arc;

use super::{Call, Node, PlanFault, Planning};
use crate::library::{self, Pattern};
use crate::value::{Map, Val};

/// Plans a list literal; it is a constant if all its elements are.
pub(super) fn plan_list(id: u32, items: Vec<(Node, bool)>) -> Node {
    let mut values = Vec::with_capacity(items.len());
    for (item, optional) in &items {
        let Node::Const(_, value) = item else {
            return Node::List { id, items };
        };
        match value {
            Val::Optional(inner) if *optional => values.extend(inner.as_deref().cloned()),
            _ if *optional || value.is_error() => return Node::List { id, items },
            _ => values.push(value.clone()),
        }
    }
    Node::Const(id, Val::list(values))
}

/// Plans a map literal; it is a constant if all its keys and values are.
pub(super) fn plan_map(id: u32, entries: Vec<(Node, Node, bool)>) -> Node {
    let mut built = Map::built();
    for (key, value, optional) in &entries {
        let (Node::Const(_, k), Node::Const(_, v)) = (key, value) else {
            return Node::Map { id, entries };
        };
        if *optional || k.is_error() || v.is_error() {
            return Node::Map { id, entries };
        }
        built.put(k.clone(), v.clone());
    }
    Node::Const(id, Val::Map(built))
}

/// Plans a call. It is a constant if it converts one; a constant pattern is compiled.
pub(super) fn plan_constant_call(mut call: Call) -> Planning<Node> {
    if call.overload == Some("in_list") {
        return Ok(plan_membership(call));
    }
    if let [Node::Const(_, value)] = call.args.as_slice()
        && library::is_conversion(&call.function)
    {
        let done = library::convert(&call.function, value).map_err(PlanFault::Beyond)?;
        return match done {
            Val::Err(message) => Err(PlanFault::Refused(message.to_string())),
            value => Ok(Node::Const(call.id, value)),
        };
    }
    if matches!(call.function.as_str(), "matches" | "find" | "findAll")
        && let Some(Node::Const(_, Val::Str(pattern))) = call.args.get(1)
    {
        let compiled = Pattern::compile(pattern).map_err(|fault| match fault {
            library::PatternFault::Refused(message) => PlanFault::Refused(message),
            library::PatternFault::Beyond(reason) => PlanFault::Beyond(reason),
        })?;
        call.pattern = Some(Arc::new(compiled));
    }
    Ok(Node::Call(Box::new(call)))
}

fn plan_membership(call: Call) -> Node {
    let Some(Node::Const(_, Val::List(list))) = call.args.get(1) else {
        return Node::Call(Box::new(call));
    };
    let mut set = Vec::new();
    for item in list.items() {
        match item {
            Val::Int(n) => set.extend([item.clone(), Val::Double(*n as f64)]),
            Val::Uint(n) => set.extend([item.clone(), Val::Double(*n as f64)]),
            Val::Double(_) | Val::Bool(_) | Val::Str(_) => set.push(item.clone()),
            _ => return Node::Call(Box::new(call)),
        }
        set.extend(item.other_numbers());
    }
    let id = call.id;
    if set.is_empty() {
        return Node::Const(id, Val::Bool(false));
    }
    match call.args.into_iter().next() {
        Some(value) => Node::Member {
            id,
            value: Box::new(value),
            set: Arc::new(set),
        },
        None => Node::Const(id, Val::no_overload()),
    }
}
