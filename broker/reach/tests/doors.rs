//! Each door with worlds in which it is open, shut and not known; each list taken away in turn; each
//! cut really removed.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "doors/acts.rs"]
mod acts;
#[path = "doors/asked.rs"]
mod asked;
#[path = "doors/between.rs"]
mod between;
#[path = "doors/changes.rs"]
mod changes;
#[path = "doors/configured.rs"]
mod configured;
#[path = "doors/lists_and_cuts.rs"]
mod lists_and_cuts;
#[path = "doors/rights.rs"]
mod rights;
#[path = "doors/roles.rs"]
mod roles;
#[path = "doors/snapshot.rs"]
mod snapshot;
#[path = "doors/what_if.rs"]
mod what_if;
