//! The commands that change which hub a target trusts, or who may use it; each ends with what each
//! target answered.

pub mod onboarding;
