//! Raises the limit of open files and connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Bounds;

/// Descriptors for other uses than the listeners' connections: files, connections to the hub, and
/// the runtime.
const OTHER_DESCRIPTORS: u64 = 256;

/// Returns how many descriptors a process with full listeners needs.
fn needed_descriptors() -> u64 {
    let listeners = [
        Bounds::TOKENS,
        Bounds::DOCUMENTS,
        Bounds::REDIRECTS,
        Bounds::HEALTH,
        Bounds::METRICS,
    ];
    OTHER_DESCRIPTORS
        + listeners
            .iter()
            .map(|bounds| u64::from(bounds.needed_descriptors()))
            .sum::<u64>()
}

/// Raises the soft limit of open files to the hard one, and warns if that is not enough: a process
/// that can open no more files serves no connection, whatever the listeners' own limits are.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Some systems report no hard limit, but still refuse an unlimited soft one.
    for wanted in [maximum, Some(needed_descriptors())] {
        let below = current.is_some_and(|current| wanted.is_none_or(|wanted| current < wanted));
        if below
            && setrlimit(
                Resource::Nofile,
                Rlimit {
                    current: wanted,
                    maximum,
                },
            )
            .is_ok()
        {
            break;
        }
    }
    if let Some(granted) = too_few(getrlimit(Resource::Nofile).current) {
        tracing::warn!(
            granted,
            needed = needed_descriptors(),
            "the limit of open files is below what the listeners admit; fix: raise the hard limit (ulimit -Hn, LimitNOFILE of the \
             container runtime)"
        );
    }
}

/// Returns the granted limit if it is not enough.
fn too_few(granted: Option<u64>) -> Option<u64> {
    granted.filter(|granted| *granted < needed_descriptors())
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, getrlimit};

    use super::{needed_descriptors, raise_limit, too_few};

    #[test]
    fn every_connection_that_is_admitted_has_a_descriptor() {
        assert!(needed_descriptors() >= 4096 + 1024 + 2048 + 1024 + 2 * (256 + 256));
        assert_eq!(
            (
                too_few(Some(1024)),
                too_few(Some(needed_descriptors())),
                too_few(None)
            ),
            (Some(1024), None, None)
        );
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert!(
            limit.current == limit.maximum || limit.current >= Some(needed_descriptors()),
            "{limit:?}"
        );
    }
}
