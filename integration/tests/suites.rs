//! All suites on real control planes. A test is named `suite::test`, and the name of a suite
//! selects its tests: `cargo test --workspace --test suites -- rotation::`.
#![allow(
    clippy::print_stderr,
    reason = "a test tells the person who waits what it measured"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test waits by the clock of the machine, as the real parts do"
)]

mod admission_policies;
mod auth_configs;
mod browser;
mod caller_certificates;
mod chaos;
mod ci;
mod clients;
mod conformance;
mod consumers;
mod control_planes;
mod crds;
mod d2;
mod deliveries;
mod denials;
mod differential;
mod discovery;
mod distributions;
mod doctor;
mod exec_clients;
mod export;
mod flux;
mod git_fleet;
mod hub_failures;
mod identity;
mod impersonation;
mod inputs;
mod install;
mod lifecycle;
mod next_release;
mod node;
mod previous_version;
mod rbac;
mod reach;
mod rehearsals;
mod releases;
mod rotation;
mod secret_readers;
mod shipped_fleet;
mod target_roles;
mod tls;
mod verifiers;
mod walk;
mod walking_path;

use std::process::ExitCode;

use keyferry_integration::runner::Run;

fn main() -> ExitCode {
    // The longest first.
    Run::new()
        .promises(include_str!("../promises.md"))
        .suite("node", node::suite())
        .suite("deliveries", deliveries::suite())
        .suite("rotation", rotation::suite())
        .suite("rehearsals", rehearsals::suite())
        .suite("flux_rotation", flux::key_rotation())
        .suite("flux", flux::suite())
        .suite("admission_policies", admission_policies::suite())
        .suite("doctor", doctor::suite())
        .suite("identity", identity::suite())
        .suite("reach", reach::suite())
        .suite("differential", differential::suite())
        .suite("discovery", discovery::suite())
        .suite("rbac", rbac::suite())
        .suite("exec_clients", exec_clients::suite())
        .suite("hub_failures", hub_failures::suite())
        .suite("auth_configs", auth_configs::suite())
        .suite("verifiers", verifiers::suite())
        .suite("caller_certificates", caller_certificates::suite())
        .suite("pod_certificates", caller_certificates::of_pods())
        .suite("export", export::suite())
        .suite("control_planes", control_planes::suite())
        .suite("git_fleet", git_fleet::suite())
        .suite("d2", d2::suite())
        .suite("ci_on_hub", ci::on_hub())
        .suite("ci_by_file", ci::by_file())
        .suite("walk", walk::suite())
        .suite("install", install::suite())
        .suite("conformance", conformance::suite())
        .suite("denials", denials::suite())
        .suite("inputs", inputs::suite())
        .suite("openapi", inputs::openapi())
        .suite("lifecycle", lifecycle::suite())
        .suite("chaos", chaos::suite())
        .suite("tls", tls::suite())
        .suite("crds", crds::suite())
        .suite("browser", browser::suite())
        .suite("clients", clients::suite())
        .suite("walking_path", walking_path::suite())
        .suite("consumers", consumers::suite())
        .suite("distributions", distributions::suite())
        .suite("secret_readers", secret_readers::suite())
        .suite("next_release", next_release::suite())
        .suite("releases", releases::suite())
        .suite("admission_latency", admission_policies::latency())
        .suite("inputs_at_scale", inputs::at_scale())
        .suite("rbac_at_scale", rbac::at_scale())
        .suite("rehearsals_at_scale", rehearsals::at_scale())
        .suite("installed_pods", node::installed())
        .suite("previous_version", previous_version::suite())
        .suite("spire", ci::spire::suite())
        .suite("gateway", ci::gateway::suite())
        .suite("image_digest", node::image_digest())
        .suite("long_rotation", rotation::long::suite())
        .suite("chaos_at_length", chaos::at_length())
        .suite("long_load", chaos::long_load())
        .main()
}
