//! Tests of managed issuers with a fake store and a clock that the tests move.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use keyferry_api::config::TokenIssuer;
use keyferry_api::reason::Reason;
use keyferry_hub::ports::HubError;
use keyferry_keys::managed_issuer::{self, KeySet};
use keyferry_platform::clock::Clock;

use super::*;
use crate::testing::SmallWorld;
use crate::testing::managed_issuers::{MONTH, Replica, WAIT, start_managed_world};

mod replicas;
mod tokens;
