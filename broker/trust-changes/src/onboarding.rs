//! Brings targets and tenants on board, and off again: the objects that they need, how they are
//! applied, and who loses what when they go.

pub(crate) mod apply;
pub(crate) mod objects;
pub(crate) mod target_facts;
pub(crate) mod users;
