//! Onboards and offboards targets and tenants: renders the objects, applies them, and lists the
//! accesses that end.

pub(crate) mod allow_rules;
pub(crate) mod apply;
pub(crate) mod change_plan;
pub(crate) mod keyferry_namespace;
pub(crate) mod loaded_file;
pub(crate) mod objects;
pub(crate) mod target_facts;
pub(crate) mod target_role;
pub(crate) mod users;
