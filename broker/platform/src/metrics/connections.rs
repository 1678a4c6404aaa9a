//! The metrics of the listeners: open, refused and ended connections, and the expiry of their
//! certificates. Listeners are `api`, `discovery`, `discovery_http`, `health` and `metrics`.

use super::table::{Counters, Gauges, metrics};

metrics! {
    /// Counters and gauges by listener.
    Connections {
        open: Gauges = "connections_open" ["listener"]
            "Open connections; listener is api, discovery, discovery_http, health or metrics",
        refused: Counters = "connections_refused" ["listener", "cause"]
            "Connections that were not served: address_limit, handshake_rate, handshakes_full, \
             connections_full, or handshake_failed, which port scanners and clients without the CA \
             cause too",
        ended: Counters = "connections_ended" ["listener", "cause"]
            "Connections that Keyferry ended: silent, no first request within 30 s; idle, without a \
             request; unread, the client did not read the answers",
        pauses: Counters = "connection_pauses" ["listener"]
            "Requests after which their connection was not read from for a moment, because the \
             client's address had sent more than 500 a second",
        reloads: Counters = "serving_certificate_reloads" ["listener", "result"]
            "Reloads of a changed serving certificate, from a Secret or from files",
        not_after: Gauges = "serving_certificate_not_after_timestamp_seconds" ["listener"]
            "When the serving certificate in use expires",
        authority_reloads: Counters = "caller_authority_reloads" ["result"]
            "Reloads of a changed CA of callers' client certificates",
        // With a label, so that a server without such a CA has no sample.
        authority_not_after: Gauges = "caller_authority_not_after_timestamp_seconds" ["listener"]
            "When the first CA of callers' client certificates in use expires",
    }
}
