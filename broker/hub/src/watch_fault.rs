//! Describes for the log why a watch of the hub failed. The library's own messages may quote
//! objects and credentials, so none is repeated.

use std::error::Error;
use std::io;

use kube::core::Status;

/// The most characters of a hub message that are logged.
const MAX_MESSAGE_CHARS: usize = 300;

/// Why a watch ended.
pub(super) enum WatchFault {
    /// The list could not be read.
    Listing(kube::Error),
    /// The watch could not be started.
    Starting(kube::Error),
    /// The watch broke off, or sent something else than events.
    Watching(kube::Error),
    /// The hub ended the watch with this answer.
    Ended(Box<Status>),
    /// A list or an event has no resourceVersion.
    NoVersion,
}

/// Describes what failed and why.
pub(super) fn describe_fault(fault: &WatchFault) -> String {
    match fault {
        WatchFault::Listing(error) => format!("listing: {}", describe_error(error)),
        WatchFault::Starting(error) => format!("starting to watch: {}", describe_error(error)),
        WatchFault::Watching(error) => format!("watching: {}", describe_error(error)),
        WatchFault::Ended(status) => format!("watching: {}", status_message(status)),
        WatchFault::NoVersion => "listing: the hub's answer has no resourceVersion".to_owned(),
    }
}

/// Whether the apiserver no longer has the changes since a version, for example after a changed
/// definition or etcd's compaction. A client then lists again (Kubernetes API concepts, "410 Gone
/// responses").
pub(super) fn is_expired(fault: &WatchFault) -> bool {
    matches!(fault, WatchFault::Ended(status) if status.code == 410)
}

/// Describes why a call failed.
pub(super) fn describe_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status_message(status),
        kube::Error::SerdeError(_) => "the hub's answer could not be read".to_owned(),
        kube::Error::Auth(_) => "Keyferry's own credentials could not be read".to_owned(),
        kube::Error::Service(error) => connection_fault(&**error),
        kube::Error::HyperError(error) => connection_fault(error),
        kube::Error::ReadEvents(error) => connection_fault(error),
        _ => "the request could not be sent".to_owned(),
    }
}

/// The hub's own message concerns only what Keyferry asked for. It is shortened to one line.
pub(super) fn status_message(status: &Status) -> String {
    let text = keyferry_api::foreign_text::one_line(&status.message, MAX_MESSAGE_CHARS);
    format!("the hub answered {}: {text}", status.code)
}

/// Returns the kind of the innermost known fault.
fn connection_fault(error: &(dyn Error + 'static)) -> String {
    let mut description = "the connection failed".to_owned();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fault) = error.downcast_ref::<io::Error>() {
            if let Some(rustls::Error::InvalidCertificate(fault)) =
                fault.get_ref().and_then(|inner| inner.downcast_ref())
            {
                return format!("the hub's certificate is not accepted: {fault:?}")
                    .chars()
                    .take(MAX_MESSAGE_CHARS)
                    .collect();
            }
            match fault.kind() {
                // These kinds carry no further information.
                io::ErrorKind::Other | io::ErrorKind::InvalidData => {}
                kind => description = kind.to_string(),
            }
        }
        next = error.source();
    }
    description
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    use kube::{Api, Client, Config};

    use super::*;

    async fn listing_at(port: u16) -> String {
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.default_retry = false;
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("keyferry.dev", "v1alpha1", "TargetAccess"),
            "targetaccesses",
        );
        let api: Api<DynamicObject> = Api::all_with(Client::try_from(config).unwrap(), &resource);
        describe_fault(&WatchFault::Listing(
            api.list(&Default::default()).await.unwrap_err(),
        ))
    }

    #[tokio::test]
    async fn a_closed_port_is_a_refused_connection() {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        assert_eq!(listing_at(port).await, "listing: connection refused");
    }

    #[test]
    fn the_hubs_words_are_bounded_and_the_librarys_are_not_repeated() {
        let status = Status {
            message: format!("line\n{}", "x".repeat(5000)),
            code: 410,
            ..Status::default()
        };
        let error = WatchFault::Ended(Box::new(status));
        assert!(is_expired(&error));
        let text = describe_fault(&error);
        assert!(
            text.starts_with(r"watching: the hub answered 410: line\u{a}xx") && text.len() < 400,
            "{text}"
        );
        let quoting = serde_json::from_str::<u8>(r#""secret of an object""#).unwrap_err();
        assert!(
            quoting.to_string().contains("secret"),
            "the library quotes what it read"
        );
        let text = describe_fault(&WatchFault::Watching(kube::Error::SerdeError(quoting)));
        assert_eq!(text, "watching: the hub's answer could not be read");
    }
}
