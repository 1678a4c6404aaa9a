//! Compares keyferry-kube-authn with kube-apiserver's own authenticator on random configurations,
//! key sets and tokens.

mod case;
mod class;
mod compare;
mod facts;
mod generate;
mod judge;
mod keys;
mod minimise;
mod node;
mod observed;
mod run;
mod shipped;
mod token;
mod verdict;

pub use facts::{hold, next_release};
pub use observed::recorded;
pub use run::{Cases, Settings, differ};
pub use shipped::shipped;
