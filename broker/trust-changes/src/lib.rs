//! The commands that change which hub a target trusts, or who may use it: `onboard`, `offboard` and
//! `revoke`. Each ends with what each target answered.

pub mod offboard;
pub mod onboard;
mod onboarding;
pub mod revoke;

keyferry_terminal::command_errors!(
    onboarding::target_facts::TargetFactsError,
    revoke::WitnessError,
);
