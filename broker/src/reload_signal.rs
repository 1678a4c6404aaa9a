//! The order to read at once what is otherwise read again every few seconds: the configuration
//! file, the hub's documents, the targets' CA certificates and the serving certificates. An
//! operator gives it by SIGHUP.

use tokio::sync::watch;

/// Hears the order. Each clone hears every one; orders that come while it is busy are heard as one.
#[derive(Clone, Debug)]
pub struct ReloadSignal(watch::Receiver<()>);

/// Gives the order.
#[derive(Debug)]
pub struct ReadAgainOrder(watch::Sender<()>);

/// Both ends.
pub fn channel() -> (ReadAgainOrder, ReloadSignal) {
    let (order, heard) = watch::channel(());
    (ReadAgainOrder(order), ReloadSignal(heard))
}

impl ReloadSignal {
    /// One that never hears anything.
    pub fn never() -> Self {
        channel().1
    }

    /// Waits for the next order.
    pub async fn ordered(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is left who could give it.
            std::future::pending().await
        }
    }
}

impl ReadAgainOrder {
    /// Everything is read again, once.
    pub fn give(&self) {
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
        assert!(one.ordered().now_or_never().is_none());
        order.give();
        order.give();
        assert!(one.ordered().now_or_never().is_some() && other.ordered().now_or_never().is_some());
        assert!(one.ordered().now_or_never().is_none());
    }

    #[tokio::test]
    async fn without_a_giver_nothing_is_heard() {
        assert!(ReloadSignal::never().ordered().now_or_never().is_none());
    }
}
