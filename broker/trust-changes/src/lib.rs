//! The commands `onboard`, `offboard` and `revoke`. `onboard` and `revoke` check their effect at the
//! targets; `offboard` changes only the hub, and prints what is left to remove at the target.

pub mod offboard;
pub mod onboard;
mod onboarding;
pub mod revoke;

keyferry_terminal::command_errors!(
    onboarding::target_facts::TargetFactsError,
    revoke::WitnessError,
);
