//! Keyferry's own TLS: certificates from Secrets of a real hub, what a client sees from outside, and
//! the redirect from plain HTTP.

mod metrics;
mod outside;
mod redirect;
mod rotation;
mod stage;
mod start;

use keyferry_integration::runner::{BoxedSuite, Suite};

use self::stage::Stage;

pub(crate) fn suite() -> BoxedSuite {
    Suite::new(Stage::start)
        .concurrent_tests(4)
        .test("a_bad_secret_does_not_start", start::a_bad_secret)
        .test(
            "the_check_says_what_it_did_not_see",
            start::the_check_says_what_it_did_not_see,
        )
        .test(
            "a_rotation_under_load_fails_no_request",
            rotation::under_load,
        )
        .test(
            "a_bad_secret_changes_nothing_and_is_reported",
            rotation::a_bad_secret,
        )
        .test(
            "secrets_are_read_without_the_right_to_watch",
            rotation::without_the_right_to_watch,
        )
        .test(
            "an_authority_of_another_certificate_is_reported",
            rotation::an_authority_of_another_certificate,
        )
        .test("a_bad_file_is_an_event_of_the_pod", rotation::a_bad_file)
        .test(
            "metrics_are_for_permitted_readers",
            metrics::only_permitted_readers,
        )
        .test(
            "openssl_sees_the_promised_tls",
            outside::openssl_sees_the_promised_tls,
        )
        .test(
            "openssl_accepts_what_tls_init_and_renew_print",
            outside::what_init_and_renew_print,
        )
        .test(
            "plain_http_redirects_and_no_more",
            redirect::plain_http_redirects,
        )
        .test(
            "an_apiserver_refuses_the_http_url",
            redirect::an_apiserver_refuses_http,
        )
        .boxed()
}
