//! The published documents of one hub's issuer, over real TLS connections, whatever the hub behind them does.
//!
//! | rule of an endpoint that every verifier can use | test |
//! |---|---|
//! | 1, 3, 4, 5: sound JSON below 1 KiB, `jwks_uri` that can be fetched, algorithms of the keys there are, nothing empty | `documents_are_sound` |
//! | 2: `issuer` is the hub's, byte for byte | `documents_are_sound` |
//! | 6: an issuer with a path | not with one hub issuer: `/issuers/…` is 404 (`refusals_and_methods`) |
//! | 7, 17, 24: Host, X-Forwarded-Host, Accept, Accept-Encoding change no byte | `no_header_changes_a_byte` |
//! | 9: never a private member | `a_bad_key_set_is_not_published` |
//! | 10, 11: `kid` is SHA-256 of the key; sizes | `documents_are_sound` |
//! | 12: the same bytes in any order, after a restart, from a second replica, over HTTP/1.1 and HTTP/2 | `replicas_and_restarts_agree`, `every_protocol_gets_the_same` |
//! | 13: other libraries read it | kube-apiserver 1.33 and 1.36 do, in `walking_path` |
//! | 14: unknown kty, AKP, x5c are left out | `odd_keys_are_left_out_and_new_ones_taken_in` |
//! | 15: too many keys | `a_bad_key_set_is_not_published`; the warning at 80 is not there yet |
//! | 16: a broken upstream | `a_broken_…_leaves_the_last_good_bytes` |
//! | 18, 20, 21, 22: HEAD, 304, max-age, CORS | `every_protocol_gets_the_same` |
//! | 19: other methods | `refusals_and_methods` |
//! | 23, 37: no request reaches the hub | `no_request_reaches_the_hub` |
//! | 25: TLS 1.2 and 1.3, certificates changed while serving | `every_protocol_gets_the_same`, `certificates_change_while_serving` |
//! | 36: before the first good reading there is no 404 | `before_the_first_reading` |
#![allow(clippy::print_stderr, reason = "a test tells the person who waits what it measured")]
#![allow(clippy::disallowed_methods, reason = "a test waits by the clock of the machine, as the real parts do")]

#[path = "discovery/certificates.rs"]
mod certificates;
#[path = "discovery/cold.rs"]
mod cold;
#[path = "discovery/http.rs"]
mod http_rules;
#[path = "discovery/key_sets.rs"]
mod key_sets;
#[path = "discovery/replicas.rs"]
mod replicas;
#[path = "discovery/setup.rs"]
mod setup;
#[path = "discovery/sound.rs"]
mod sound;
#[path = "discovery/upstream.rs"]
mod upstream;

use std::process::ExitCode;

use keyferry_integration::runner::Suite;
use keyferry_integration::world::World;

fn main() -> ExitCode {
    Suite::new(World::start)
        .at_once(8)
        .test("documents_are_sound", sound::documents_are_sound)
        .test("every_protocol_gets_the_same", http_rules::every_protocol_gets_the_same)
        .test("no_header_changes_a_byte", http_rules::no_header_changes_a_byte)
        .test("refusals_and_methods", http_rules::refusals_and_methods)
        .test("no_request_reaches_the_hub", http_rules::no_request_reaches_the_hub)
        .test("replicas_and_restarts_agree", replicas::replicas_and_restarts_agree)
        .test("certificates_change_while_serving", certificates::change_while_serving)
        .test("before_the_first_reading", cold::before_the_first_reading)
        .test("a_broken_metadata_document_leaves_the_last_good_bytes", |world| upstream::broken(world, setup::METADATA))
        .test("a_broken_key_set_document_leaves_the_last_good_bytes", |world| upstream::broken(world, setup::KEYS))
        .test("a_bad_key_set_is_not_published", key_sets::a_bad_one_is_not_published)
        .test("odd_keys_are_left_out_and_new_ones_taken_in", key_sets::odd_keys_are_left_out_and_new_ones_taken_in)
        .run()
}
