//! Nothing but tests: see `tests/simulation` and `tests/model`.
