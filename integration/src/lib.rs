//! Runs real control planes on loopback, with the servers and tools that tests need around them.
//!
//! A [`fleet::Fleet`] is one etcd and any number of [`control_plane::ControlPlane`]s, each with its
//! own issuer, signing keys, CA and AuthenticationConfiguration. [`runner::Suite`] runs tests
//! against one.
#![allow(
    clippy::print_stderr,
    reason = "a test harness tells the person who waits what it builds and what failed"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test harness waits by the clock of the machine, as the real parts do"
)]

pub mod apiserver;
pub mod auth_configs;
pub mod browser;
pub mod built_image;
pub mod chaos_proxy;
pub mod ci_issuer;
pub mod control_plane;
pub mod controller_manager;
pub mod cosign;
pub mod differential;
pub mod document_server;
pub mod documents;
pub mod etcd;
pub mod fleet;
pub mod flux;
pub mod forward_proxy;
pub mod git_server;
pub mod haproxy;
pub mod http_client;
pub mod https;
pub mod keyferry_process;
pub mod kubeconfig;
pub mod mcp_server;
pub mod network_namespace;
pub mod node;
pub mod oci_registry;
pub mod oracle;
pub mod parts;
pub mod pki;
pub mod pod_host;
pub mod pod_process;
pub mod ports;
pub mod previous_version;
pub mod private_sigstore;
pub mod process;
pub mod promises;
pub mod random;
pub mod rbac;
pub mod rbac_questions;
pub mod readiness;
pub mod relay;
pub mod rendered;
pub mod rest;
pub mod runner;
pub mod small_disk;
pub mod spire;
pub mod traefik;
pub mod transcript;
pub mod user_home;
pub mod wait;
pub mod world;
