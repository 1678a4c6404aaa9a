//! A signal to reload at once what is otherwise reloaded every few seconds: the configuration file,
//! the hub's documents, the targets' CA certificates and the serving certificates. An operator
//! sends it by SIGHUP.

use futures::{Stream, stream};
use tokio::sync::watch;

/// Receives reload signals. Each clone receives every one; signals that arrive while it is busy
/// count as one.
#[derive(Clone, Debug)]
pub struct ReloadSignal(watch::Receiver<()>);

/// Sends reload signals.
#[derive(Debug)]
pub struct ReadAgainOrder(watch::Sender<()>);

/// Creates a sender and a receiver.
pub fn channel() -> (ReadAgainOrder, ReloadSignal) {
    let (order, heard) = watch::channel(());
    (ReadAgainOrder(order), ReloadSignal(heard))
}

impl ReloadSignal {
    /// Creates a receiver that never receives a signal.
    pub fn never() -> Self {
        channel().1
    }

    /// Waits for the next signal.
    pub async fn received(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender is gone, so no signal can come.
            std::future::pending().await
        }
    }
}

impl ReloadSignal {
    /// The signals as a stream, which never ends.
    pub fn into_stream(self) -> impl Stream<Item = ()> + Send {
        stream::unfold(self, async |mut signal| {
            signal.received().await;
            Some(((), signal))
        })
    }
}

impl ReadAgainOrder {
    /// Makes every receiver reload once.
    pub fn send_reload(&self) {
        self.0.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::{ReloadSignal, channel};

    #[tokio::test]
    async fn every_clone_hears_an_order_once() {
        let (order, mut one) = channel();
        let mut other = one.clone();
        assert!(one.received().now_or_never().is_none());
        order.send_reload();
        order.send_reload();
        assert!(
            one.received().now_or_never().is_some() && other.received().now_or_never().is_some()
        );
        assert!(one.received().now_or_never().is_none());
    }

    #[tokio::test]
    async fn without_a_giver_nothing_is_heard() {
        assert!(ReloadSignal::never().received().now_or_never().is_none());
    }
}
