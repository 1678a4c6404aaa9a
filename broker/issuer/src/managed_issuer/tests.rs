//! Tests of managed issuers with a fake store and a clock that the tests move.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use keyferry_core::config::TokenIssuer;
use keyferry_core::managed_issuer::{self, KeySet};
use keyferry_core::reason::Reason;

use super::*;
use crate::testing::SmallWorld;
use crate::testing::managed_issuers::{MONTH, Replica, WAIT, world};
use keyferry_hub::clock::Clock;
use keyferry_hub::ports::HubError;

mod replicas;
mod tokens;
