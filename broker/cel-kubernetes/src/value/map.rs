//! Maps, and the variable that behaves like one.

use std::sync::Arc;

use super::{Extent, Val};

/// A map. `native` marks Go's `map[string]any`, in which only strings are looked up; `unescape`
/// marks maps of claims from 1.34 on.
#[derive(Debug, Clone)]
pub(crate) struct Map {
    entries: Arc<Vec<(Val, Val)>>,
    native: bool,
    unescape: bool,
    extent: Extent,
}

impl Map {
    /// Creates a map as an expression builds it. A later entry replaces an earlier one of the same
    /// key.
    pub(crate) fn built() -> Self {
        Self {
            entries: Arc::default(),
            extent: Extent::default(),
            native: false,
            unescape: false,
        }
    }

    /// Creates a map that was read from JSON.
    pub(crate) fn json(entries: Vec<(Val, Val)>) -> Self {
        Self {
            extent: Extent::of(entries.iter().map(|(_, value)| value)),
            entries: Arc::new(entries),
            native: true,
            unescape: false,
        }
    }

    pub(crate) fn unescaping(mut self, unescape: bool) -> Self {
        self.unescape = unescape;
        self
    }

    pub(crate) fn is_unescaping(&self) -> bool {
        self.unescape
    }

    pub(crate) fn native(self) -> Self {
        self.unescaping(false)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[(Val, Val)] {
        &self.entries
    }

    pub(crate) fn first(&self) -> Option<&(Val, Val)> {
        self.entries.first()
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Adds an entry, or replaces the one with an identical key.
    pub(crate) fn put(&mut self, key: Val, value: Val) {
        self.extent.add(&value);
        let entries = Arc::make_mut(&mut self.entries);
        match entries.iter_mut().find(|(k, _)| k.identical(&key)) {
            Some(found) => found.1 = value,
            None => entries.push((key, value)),
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, key: &Val) {
        Arc::make_mut(&mut self.entries).retain(|(k, _)| !k.identical(key));
    }

    /// Returns the value that a selection or an index finds.
    pub(crate) fn find(&self, key: &Val) -> Option<Val> {
        if !self.unescape {
            return self.get(key);
        }
        let unescaped = match key {
            Val::Str(name) => crate::escape::unescape_name(name).map(Val::from),
            _ => None,
        };
        self.get(unescaped.as_ref().unwrap_or(key))
            .map(Val::unescaping)
    }

    /// Returns the value of a key, without unescaping.
    pub(crate) fn get(&self, key: &Val) -> Option<Val> {
        let same = |wanted: &Val| {
            self.entries
                .iter()
                .find(|(k, _)| k.identical(wanted))
                .map(|(_, v)| v.clone())
        };
        if self.native {
            return if matches!(key, Val::Str(_)) {
                same(key)
            } else {
                None
            };
        }
        same(key).or_else(|| key.other_numbers().iter().find_map(same))
    }
}

/// The variable as the API server passes it from 1.34 on.
#[derive(Debug)]
pub(crate) struct Lazy {
    pub(crate) type_name: &'static str,
    entries: Vec<(Arc<str>, Val)>,
}

impl Lazy {
    pub(crate) fn new(type_name: &'static str, entries: Vec<(Arc<str>, Val)>) -> Self {
        Self { type_name, entries }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether iteration has a fixed order. Claims come out of a Go map, the fields of a user do
    /// not.
    pub(crate) fn is_ordered(&self) -> bool {
        self.type_name == "kubernetes.UserInfo"
    }

    /// Returns what iteration yields: the value of every name. The names are looked up as if they
    /// were escaped, so a name that contains an escape yields the error of a missing key.
    pub(crate) fn values(&self) -> Vec<Val> {
        let names = self.entries.iter().map(|(name, _)| name);
        names
            .map(|name| self.get(&Val::Str(Arc::clone(name))))
            .collect()
    }

    /// Returns what a key selects, or the error that the API server has instead.
    pub(crate) fn get(&self, key: &Val) -> Val {
        match self.find(key) {
            Ok(Some(value)) => value,
            Ok(None) => Val::error(format!("no such key: {key}")),
            Err(error) => error,
        }
    }

    /// Returns the value of a name, which may be escaped. An error if the key is not a string.
    pub(crate) fn find(&self, key: &Val) -> Result<Option<Val>, Val> {
        let Val::Str(name) = key else {
            return Err(Val::no_overload());
        };
        let Some(name) = crate::escape::unescape_strict(name) else {
            return Ok(None);
        };
        Ok(self
            .entries
            .iter()
            .find(|(n, _)| **n == *name)
            .map(|(_, v)| v.clone()))
    }
}
