//! Memory of requests: a source never has more than its share, and all of it comes back.

use std::net::Ipv4Addr;
use std::sync::Arc;

use shuttle::thread;

use super::count_broken;
use crate::bodies::{Bodies, Share};
use crate::source::Source;

/// The share of one source, in KiB.
const OF_SOURCE: u32 = 24 * 1024;
/// A source has room for one request of this size.
const LARGE_KIB: u32 = OF_SOURCE / 2 + 1;
const REQUESTS: usize = 3;

/// Each request takes memory before it uses it, and holds it while it lasts.
pub fn taken_before_it_is_used(schedules: usize) -> usize {
    one_at_a_time_fits(schedules, |bodies| {
        let mut share = bodies.new_share(only_source());
        share.grow_by(LARGE_KIB).ok().map(|()| share)
    })
}

/// The mistake: a request looks whether there is room, and uses it without taking it.
pub fn looked_at_and_not_taken(schedules: usize) -> usize {
    one_at_a_time_fits(schedules, |bodies| {
        let mut share = bodies.new_share(only_source());
        let fits = share.grow_by(LARGE_KIB).is_ok();
        drop(share);
        fits.then(|| bodies.new_share(only_source()))
    })
}

fn one_at_a_time_fits(schedules: usize, begin: fn(&Arc<Bodies>) -> Option<Share>) -> usize {
    count_broken(schedules, move || {
        let bodies = Bodies::new(true);
        let under_way = Arc::new(shuttle::sync::atomic::AtomicUsize::new(0));
        let request = || {
            let (bodies, under_way) = (Arc::clone(&bodies), Arc::clone(&under_way));
            thread::spawn(move || {
                let Some(_held) = begin(&bodies) else {
                    return true;
                };
                let others = under_way.fetch_add(1, ORDER);
                thread::yield_now();
                under_way.fetch_sub(1, ORDER);
                others == 0
            })
        };
        let requests: Vec<_> = (0..REQUESTS).map(|_| request()).collect();
        let one_at_a_time = requests
            .into_iter()
            .all(|request| request.join().unwrap_or(false));
        one_at_a_time && bodies.new_share(only_source()).grow_by(OF_SOURCE).is_ok()
    })
}

const ORDER: shuttle::sync::atomic::Ordering = shuttle::sync::atomic::Ordering::SeqCst;

fn only_source() -> Source {
    Source::of_address(Ipv4Addr::new(192, 0, 2, 1).into())
}
