//! The published key set of a real hub, read by verifiers in other languages and of different ages,
//! which also judge the hub's tokens with it.
//!
//! The hub signs with RSA and also has EC keys of two curves. A proxy before Keyferry adds the keys
//! and members that a newer hub may have. `integration/clients/verifiers` contains the programs,
//! one for each language.

mod hub;
mod odd_keys;
mod verdicts;

use hub::PublishedHub;
use keyferry_integration::parts::Part;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::runner::{BoxedSuite, Needed, Suite};
use verdicts::Program;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(PublishedHub::start)
        .needs([
            Needed::Part(Part::GoVerifiers),
            Needed::Part(Part::OlderGoVerifiers),
            Needed::Client(Client::PythonVerifiers),
            Needed::Client(Client::JavaScriptVerifiers),
            Needed::Client(Client::JavaVerifiers),
        ])
        .concurrent_tests(2)
        .test("go_libraries_of_today", |hub| {
            verdicts::all_agree(hub, Program::Go(Part::GoVerifiers))
        })
        .test("go_libraries_of_some_years_ago", |hub| {
            verdicts::all_agree(hub, Program::Go(Part::OlderGoVerifiers))
        })
        .test("python_libraries", |hub| {
            verdicts::all_agree(hub, Program::Other(Client::PythonVerifiers))
        })
        .test("javascript_libraries", |hub| {
            verdicts::all_agree(hub, Program::Other(Client::JavaScriptVerifiers))
        })
        .test("java_libraries", |hub| {
            verdicts::all_agree(hub, Program::Other(Client::JavaVerifiers))
        })
        .test(
            "a_hubs_own_set_would_break_some",
            odd_keys::a_hubs_own_set_would_break_some,
        )
        .boxed()
}
