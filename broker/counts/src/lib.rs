//! Nothing: the crate has tests alone, which count what an exchange, a delivery and an evaluation
//! cost.
