//! Makes trees that lack one part of a given tree.

use super::expression;
use crate::differential::node::Node;

/// Every tree with one entry or item less, and with simpler expressions. The biggest removals come
/// first.
pub(super) fn smaller(tree: &Node) -> Vec<Node> {
    let mut found: Vec<Node> = Vec::new();
    found.extend(halves(tree));
    collect(tree, "", &mut |changed| found.push(changed));
    found.sort_by_key(weight);
    found
}

/// A long map without a run of its entries.
fn halves(node: &Node) -> Vec<Node> {
    let Node::Map(entries) = node else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut length = entries.len() / 2;
    while length > 1 {
        for start in (0..entries.len()).step_by(length) {
            let gone = start..start + length;
            let kept = entries
                .iter()
                .enumerate()
                .filter(|(index, _)| !gone.contains(index))
                .map(|(_, entry)| entry.clone());
            found.push(Node::Map(kept.collect()));
        }
        length /= 2;
    }
    found
}

fn weight(node: &Node) -> usize {
    node.json().len()
}

/// Calls `emit` with the whole tree for each change below the node.
fn collect(node: &Node, key: &str, emit: &mut dyn FnMut(Node)) {
    match node {
        Node::Raw(_) => {}
        Node::Text(text) if key == "expression" || key == "valueExpression" => {
            expression::smaller(text)
                .into_iter()
                .for_each(|text| emit(Node::Text(text)))
        }
        Node::Text(text) => {
            if text.len() > 1 {
                emit(Node::text(text.chars().take(1).collect::<String>()));
            }
        }
        Node::List(items) => {
            for index in 0..items.len() {
                emit(Node::List(without(items, index)));
            }
            for (index, item) in items.iter().enumerate() {
                collect(item, key, &mut |changed| {
                    emit(Node::List(replaced(items, index, changed)))
                });
            }
        }
        Node::Map(entries) => {
            for index in 0..entries.len() {
                emit(Node::Map(without(entries, index)));
            }
            for (index, (name, value)) in entries.iter().enumerate() {
                collect(value, name, &mut |changed| {
                    emit(Node::Map(replaced(entries, index, (name.clone(), changed))))
                });
            }
        }
    }
}

fn without<T: Clone>(items: &[T], index: usize) -> Vec<T> {
    items
        .iter()
        .enumerate()
        .filter(|(place, _)| *place != index)
        .map(|(_, item)| item.clone())
        .collect()
}

fn replaced<T: Clone>(items: &[T], index: usize, other: T) -> Vec<T> {
    let mut items = items.to_vec();
    if let Some(place) = items.get_mut(index) {
        *place = other;
    }
    items
}
