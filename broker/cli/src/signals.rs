//! The signals that end a command.

#[cfg(feature = "view")]
use std::process::ExitCode;

/// Takes over SIGTERM and SIGINT at once, and returns what ends with the first of them. A signal
/// that comes while the server starts must not end it without its cleanup.
pub(crate) fn stop_signal() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signals = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate())
            .ok()
            .zip(signal(SignalKind::interrupt()).ok())
    };
    async move {
        #[cfg(unix)]
        if let Some((mut terminated, mut interrupted)) = signals {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
            return;
        }
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// As [`stop_signal`], for a command that ends before its work is done: returns its exit code, which
/// is 128 and the number of the signal, as of a command that the signal ended.
#[cfg(feature = "view")]
pub(crate) fn interruption() -> impl Future<Output = ExitCode> {
    use rustix::process::Signal;
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |signal_of: Signal| {
        let number = signal_of.as_raw();
        Some((signal(SignalKind::from_raw(number)).ok()?, number))
    };
    let signals: Vec<_> = [Signal::INT, Signal::TERM, Signal::HUP]
        .into_iter()
        .filter_map(listen)
        .collect();
    async move {
        if signals.is_empty() {
            std::future::pending::<()>().await;
        }
        let first = signals.into_iter().map(|(mut signal, number)| {
            Box::pin(async move {
                signal.recv().await;
                number
            })
        });
        let (number, ..) = futures::future::select_all(first).await;
        ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
    }
}
