//! Nothing but tests: `tests/simulation` runs the product's parts in virtual time,
//! `tests/interleavings` in every order of their steps, `tests/model` explores two models, and
//! `tests/budgets` measures what one tenant costs.
