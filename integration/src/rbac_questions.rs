//! Random RBAC policies, and questions about them that an apiserver answers.
//!
//! The vocabulary is small, so that rules and questions meet. Most questions start from a rule that
//! a binding gives somebody, and change one part of it.

mod objects;
mod questions;
mod truth;

pub use objects::{NAMESPACES, generate_objects};
pub use questions::{Question, generate_questions};
pub use truth::{
    Difference, Round, Truth, ask_round, collect_round, compare, read_stored_policy,
    until_all_count, write_objects, write_round,
};

/// The verbs of rules and questions; `*` stands for itself in a question.
const VERBS: [&str; 9] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "bind",
    "impersonate",
];
const API_GROUPS: [&str; 4] = ["", "apps", "batch", "example.com"];
const RESOURCES: [&str; 6] = [
    "pods",
    "deployments",
    "configmaps",
    "secrets",
    "nodes",
    "widgets",
];
const SUBRESOURCES: [&str; 5] = ["scale", "status", "log", "exec", "token"];
/// The empty name is what a list or a create asks for.
const NAMES: [&str; 5] = ["", "a", "b", "c", "*"];
const PATHS: [&str; 12] = [
    "/",
    "/healthz",
    "/healthz/",
    "/healthz/etcd",
    "/metrics",
    "/metrics/slis",
    "/logs/a/b",
    "/api",
    "/apis/apps",
    "/x/*/y",
    "/x/z/y",
    "/*",
];
const USERS: [&str; 8] = [
    "alice",
    "bob",
    "readers",
    "hub:system:serviceaccount:shop:app",
    "system:serviceaccount:shop:app",
    "system:serviceaccount:shop:",
    "system:node:n1",
    "Zoë \"z\"",
];
const GROUPS: [&str; 8] = [
    "readers",
    "writers",
    "alice",
    "system:authenticated",
    "system:serviceaccounts",
    "system:serviceaccounts:shop",
    "system:serviceaccounts:bank",
    "team:übung",
];
const ACCOUNTS: [&str; 3] = ["app", "ci", "default"];
/// The names of Roles and ClusterRoles alike, so that one can be taken for the other.
const ROLES: [&str; 8] = [
    "reader", "editor", "scaler", "operator", "viewer", "named", "paths", "gone",
];
