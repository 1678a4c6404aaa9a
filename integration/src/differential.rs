//! Random configurations, key sets and tokens, judged by keyferry-trust and by kube-apiserver's own
//! authenticator.

mod case;
mod class;
mod compare;
mod facts;
mod generate;
mod judge;
mod keys;
mod minimise;
mod node;
mod random;
mod run;
mod shipped;
mod token;
mod verdict;

pub use facts::hold;
pub use run::{Cases, Settings, differ};
pub use shipped::shipped;
