//! Rules that decide which request gets which fault.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

/// What the proxy does to a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Forwards the request after a delay.
    Delay(Duration),
    /// Forwards the request once this is true, or once its sender is dropped.
    Hold(watch::Receiver<bool>),
    /// Answers with this response and does not forward the request.
    Status {
        /// Its status.
        status: StatusCode,
        /// Its headers, such as `Retry-After`.
        headers: Vec<(HeaderName, HeaderValue)>,
        /// Its body.
        body: Vec<u8>,
    },
    /// Forwards the request and returns the true body at one byte a second.
    ByteASecond,
    /// Forwards the request and breaks the connection after the first half of the true body.
    HalfBody,
    /// Forwards the request with every occurrence of the first text in path and query replaced.
    RewritePath {
        /// The text to replace.
        from: String,
        /// The replacement.
        to: String,
    },
    /// Breaks the connection, with everything else on it, and does not forward the request.
    Drop,
    /// Forwards the request and returns the true status with another body.
    ReplaceBody {
        /// The body.
        body: Vec<u8>,
        /// Its content type.
        content_type: HeaderValue,
    },
    /// Kills the client (SIGKILL) at this request, and passes no answer on.
    Kill(KillSwitch),
}

/// When a client is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillMoment {
    /// The server never receives the request.
    BeforeRequest,
    /// The server has carried out the request, and the client never learns it.
    BeforeAnswer,
}

/// Kills a process at one request, and remembers at which.
#[derive(Debug, Clone)]
pub struct KillSwitch {
    process: u32,
    moment: KillMoment,
    request: Arc<OnceLock<String>>,
}

impl KillSwitch {
    /// For a child process of the tests that is running.
    pub fn of(process: u32, moment: KillMoment) -> Self {
        Self {
            process,
            moment,
            request: Arc::default(),
        }
    }

    /// Method and path of the request at which the process is killed, once that has arrived.
    pub fn request(&self) -> Option<&str> {
        self.request.get().map(String::as_str)
    }

    pub(super) fn moment(&self) -> KillMoment {
        self.moment
    }

    pub(super) fn note_request(&self, method: &Method, path: &str) {
        let _ = self.request.set(format!("{method} {path}"));
    }

    pub(super) fn kill(&self) {
        if let Some(id) = i32::try_from(self.process).ok().and_then(Pid::from_raw) {
            // A process that has exited already cannot be killed, which is as good.
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// A fault and the requests that meet it.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<Method>,
    path_contains: String,
    fault: Fault,
    skipped: u32,
    left: Option<u32>,
}

impl Rule {
    /// Matches requests with the method whose path and query contain the text.
    pub fn on(method: Method, path_contains: &str, fault: Fault) -> Self {
        Self {
            method: Some(method),
            path_contains: path_contains.to_owned(),
            fault,
            skipped: 0,
            left: None,
        }
    }

    /// Matches requests with any method whose path and query contain the text. The empty text
    /// matches all.
    pub fn on_any(path_contains: &str, fault: Fault) -> Self {
        Self {
            method: None,
            path_contains: path_contains.to_owned(),
            fault,
            skipped: 0,
            left: None,
        }
    }

    /// Limits the rule to the next `times` matching requests.
    pub fn times(mut self, times: u32) -> Self {
        self.left = Some(times);
        self
    }

    /// Lets the first `count` matching requests pass.
    pub fn after(mut self, count: u32) -> Self {
        self.skipped = count;
        self
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        self.left != Some(0)
            && self.method.as_ref().is_none_or(|one| one == method)
            && path.contains(&self.path_contains)
    }
}

/// Identifies a rule of one proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(u64);

/// The rules of one proxy, in order.
#[derive(Debug, Default)]
pub(super) struct Rules {
    all: Vec<(RuleId, Rule)>,
    next: u64,
}

impl Rules {
    pub(super) fn add(&mut self, rule: Rule) -> RuleId {
        let id = RuleId(self.next);
        self.next += 1;
        self.all.push((id, rule));
        id
    }

    pub(super) fn remove(&mut self, id: RuleId) {
        self.all.retain(|(one, _)| *one != id);
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// Returns the fault of the first rule that matches, and counts one use of it.
    pub(super) fn fault_for(&mut self, method: &Method, path: &str) -> Option<Fault> {
        let matching = self
            .all
            .iter_mut()
            .map(|(_, rule)| rule)
            .filter(|rule| rule.matches(method, path));
        for rule in matching {
            if rule.skipped > 0 {
                rule.skipped -= 1;
                continue;
            }
            rule.left = rule.left.map(|left| left.saturating_sub(1));
            return Some(rule.fault.clone());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts_until_it_is_used_up() {
        let mut rules = Rules::default();
        rules.add(Rule::on(Method::POST, "/token", Fault::Drop).times(1));
        let second = rules.add(Rule::on_any("/token", Fault::ByteASecond));
        assert!(rules.fault_for(&Method::POST, "/pods").is_none());
        assert!(matches!(
            rules.fault_for(&Method::GET, "/a/token"),
            Some(Fault::ByteASecond)
        ));
        assert!(matches!(
            rules.fault_for(&Method::POST, "/a/token"),
            Some(Fault::Drop)
        ));
        assert!(matches!(
            rules.fault_for(&Method::POST, "/a/token"),
            Some(Fault::ByteASecond)
        ));
        rules.remove(second);
        assert!(rules.fault_for(&Method::POST, "/a/token").is_none());
    }
    #[test]
    fn a_rule_applies_after_so_many_requests() {
        let mut rules = Rules::default();
        let rule = Rule::on(Method::PUT, "/secrets", Fault::Drop);
        rules.add(rule.after(1).times(1));
        let mut next = |method| rules.fault_for(&method, "/secrets").is_some();
        let faults = [Method::POST, Method::PUT, Method::PUT, Method::PUT].map(&mut next);
        assert_eq!(faults, [false, false, true, false]);
    }
}
