//! Brings targets and tenants on board, and off again: the objects that they need, how they are
//! applied, and who loses what when they go.

pub mod apply;
pub mod objects;
pub mod target_facts;
pub mod users;
