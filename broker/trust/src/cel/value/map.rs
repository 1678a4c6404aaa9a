//! Maps, and the variable that is one.

use std::sync::Arc;

use super::Val;

/// A map. `native` marks Go's `map[string]any`, in which only strings are looked up; `unescape`
/// those of claims since 1.34.
#[derive(Debug, Clone)]
pub(in crate::cel) struct Map {
    entries: Arc<Vec<(Val, Val)>>,
    native: bool,
    unescape: bool,
}

impl Map {
    /// A map as an expression builds it. Later entries replace earlier ones of the same key.
    pub(in crate::cel) fn built() -> Self {
        Self {
            entries: Arc::default(),
            native: false,
            unescape: false,
        }
    }

    /// A map that came from JSON.
    pub(in crate::cel) fn json(entries: Vec<(Val, Val)>) -> Self {
        Self {
            entries: Arc::new(entries),
            native: true,
            unescape: false,
        }
    }

    pub(in crate::cel) fn unescaping(mut self, unescape: bool) -> Self {
        self.unescape = unescape;
        self
    }

    pub(in crate::cel) fn is_unescaping(&self) -> bool {
        self.unescape
    }

    pub(in crate::cel) fn native(self) -> Self {
        self.unescaping(false)
    }

    pub(in crate::cel) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(in crate::cel) fn entries(&self) -> &[(Val, Val)] {
        &self.entries
    }

    pub(in crate::cel) fn first(&self) -> Option<&(Val, Val)> {
        self.entries.first()
    }

    /// Puts an entry, or replaces the one whose key is the very same.
    pub(in crate::cel) fn put(&mut self, key: Val, value: Val) {
        let entries = Arc::make_mut(&mut self.entries);
        match entries.iter_mut().find(|(k, _)| k.identical(&key)) {
            Some(found) => found.1 = value,
            None => entries.push((key, value)),
        }
    }

    /// Takes an entry away.
    pub(in crate::cel) fn remove(&mut self, key: &Val) {
        Arc::make_mut(&mut self.entries).retain(|(k, _)| !k.identical(key));
    }

    /// The value that a selection or an index finds.
    pub(in crate::cel) fn find(&self, key: &Val) -> Option<Val> {
        if !self.unescape {
            return self.get(key);
        }
        let unescaped = match key {
            Val::Str(name) => crate::cel::escape::unescape(name).map(Val::from),
            _ => None,
        };
        self.get(unescaped.as_ref().unwrap_or(key))
            .map(Val::unescaping)
    }

    /// The value of a key as it stands, without unescaping.
    pub(in crate::cel) fn get(&self, key: &Val) -> Option<Val> {
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

/// The variable as the API server hands it over since 1.34.
#[derive(Debug)]
pub(in crate::cel) struct Lazy {
    pub(in crate::cel) type_name: &'static str,
    entries: Vec<(Arc<str>, Val)>,
}

impl Lazy {
    pub(in crate::cel) fn new(type_name: &'static str, entries: Vec<(Arc<str>, Val)>) -> Self {
        Self { type_name, entries }
    }

    pub(in crate::cel) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What iteration gives: the values.
    pub(in crate::cel) fn values(&self) -> impl Iterator<Item = &Val> {
        self.entries.iter().map(|(_, v)| v)
    }

    /// The value of a name, which may be escaped. An error if the key is not a string.
    pub(in crate::cel) fn find(&self, key: &Val) -> Result<Option<Val>, Val> {
        let Val::Str(name) = key else {
            return Err(Val::no_overload());
        };
        let Some(name) = crate::cel::escape::unescape_strict(name) else {
            return Ok(None);
        };
        Ok(self
            .entries
            .iter()
            .find(|(n, _)| **n == *name)
            .map(|(_, v)| v.clone()))
    }
}
