//! Lists, with the properties of their Go form.

use std::sync::Arc;

use super::{Extent, Val};

/// A list. `unescape` marks the lists of claims from 1.34 on: an element taken by index has its
/// names unescaped.
#[derive(Debug, Clone)]
pub(crate) struct List {
    items: Arc<Vec<Val>>,
    unescape: bool,
    strings: bool,
    shared: bool,
    /// Whether the elements are in an order that depends on the order of a map.
    shuffled: bool,
    extent: Extent,
}

impl List {
    pub(crate) fn new(items: Vec<Val>) -> Self {
        Self {
            extent: Extent::of(&items),
            items: Arc::new(items),
            unescape: false,
            strings: false,
            shared: false,
            shuffled: false,
        }
    }

    /// Creates a list that is `[]string` in Go.
    pub(crate) fn of_strings(items: Vec<String>) -> Self {
        Self {
            strings: true,
            ..Self::new(items.into_iter().map(Val::from).collect())
        }
    }

    /// Returns the list, marked as one of claims if `unescape`.
    pub(crate) fn unescaping(mut self, unescape: bool) -> Self {
        self.unescape = unescape;
        self
    }

    /// Whether it is `[]string` in Go, which a mapping does not accept as a list of strings.
    pub(crate) fn is_go_strings(&self) -> bool {
        self.strings
    }

    /// Creates an empty list as optMap binds it: `+` changes it in place, for every reference to
    /// it.
    pub(crate) fn growing() -> Self {
        Self {
            shared: true,
            ..Self::new(Vec::new())
        }
    }

    pub(crate) fn is_growing(&self) -> bool {
        self.shared
    }

    /// Returns the list, with its elements in an unknown order.
    pub(crate) fn shuffled(mut self) -> Self {
        self.shuffled = true;
        self
    }

    /// Whether its elements are in an unknown order that can matter.
    pub(crate) fn is_shuffled(&self) -> bool {
        self.shuffled
            && match self.items.split_first() {
                Some((first, rest)) => rest.iter().any(|item| !first.same(item)),
                None => false,
            }
    }

    /// Returns one of the elements, whichever a random order selects.
    pub(crate) fn one_of(&self) -> Val {
        let items: Vec<Val> = (0..self.len()).filter_map(|i| self.get(i)).collect();
        Val::one_of(items.iter())
    }

    pub(crate) fn is_unescaping(&self) -> bool {
        self.unescape
    }

    /// Whether only the elements can tell the two lists apart.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.unescape == other.unescape
            && self.strings == other.strings
            && !self.shared
            && !other.shared
            && !self.shuffled
            && !other.shuffled
    }

    pub(crate) fn native(self) -> Self {
        self.unescaping(false)
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the elements, as iteration yields them.
    pub(crate) fn items(&self) -> &[Val] {
        &self.items
    }

    pub(crate) fn first(&self) -> Option<&Val> {
        self.items.first()
    }

    /// Returns the element, as an index yields it.
    pub(crate) fn get(&self, index: usize) -> Option<Val> {
        self.items
            .get(index)
            .cloned()
            .map(|v| if self.unescape { v.unescaping() } else { v })
    }

    /// Computes `self + other`.
    pub(crate) fn concat(&self, other: &Self) -> Self {
        if self.len() == 0 {
            return other.clone();
        }
        if other.len() == 0 {
            return self.clone().native();
        }
        let mut items = Vec::with_capacity(self.len() + other.len());
        items.extend(self.items.iter().cloned());
        items.extend((0..other.len()).filter_map(|i| other.get(i)));
        Self {
            shuffled: self.shuffled || other.shuffled,
            ..Self::new(items)
        }
    }
}

impl Val {
    /// Marks the value as part of claims: its containers unescape the names that they look up.
    pub(crate) fn unescaping(self) -> Self {
        match self {
            Self::List(l) => Self::List(l.unescaping(true)),
            Self::Map(m) => Self::Map(m.unescaping(true)),
            other => other,
        }
    }
}
