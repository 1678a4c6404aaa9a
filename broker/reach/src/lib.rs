//! Who can do what at which target, by which way: one question, answered from what was read.
//!
//! [`world::World`] is what was read of a hub and its targets. [`answer::answer_question`]
//! answers from it. The hub's RBAC opens [`doors`]: each makes one identity
//! another, or gives it a token. A token meets the target's AuthenticationConfiguration, and the
//! user that comes out meets the target's RBAC.
//!
//! There are three answers. *Yes* has a way of which every step was seen. *No* has every step
//! refuted. All else is *undetermined*, with the smallest set of what would decide it: a list that
//! was not read, or a door that is not evaluated. Nothing is concluded from the absence of an
//! object in a list that was not read whole.

mod accounts;
mod act;
mod actor;
pub mod answer;
mod cluster_rights;
mod cut;
mod delivery_grants;
pub mod doors;
mod doubt;
mod edge;
mod fence;
mod granted;
mod hub_search;
mod keyferry_mint;
mod list;
pub mod report;
mod right;
pub mod sample;
mod subject;
mod target_rights;
mod target_tokens;
pub mod way;
pub mod what_if;
pub mod world;

pub use doubt::Doubt;
pub use list::{ListKind, Lists};
pub use subject::{Subject, SubjectError};
