//! Which request meets which fault.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::watch;

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Passed on after a time.
    Delay(Duration),
    /// Passed on once this is true, or nobody is left to say so.
    Hold(watch::Receiver<bool>),
    /// Not passed on: this is the answer.
    Status {
        /// Its status.
        status: StatusCode,
        /// Its headers, such as `Retry-After`.
        headers: Vec<(HeaderName, HeaderValue)>,
        /// Its body.
        body: Vec<u8>,
    },
    /// Passed on; the true body comes back one byte a second.
    ByteASecond,
    /// Passed on; the connection breaks after the first half of the true body.
    HalfBody,
    /// Passed on with the first text replaced by the second wherever it stands in path and query.
    RewritePath {
        /// What is replaced.
        from: String,
        /// By what.
        to: String,
    },
    /// Not passed on: the connection breaks, with everything else that runs on it.
    Drop,
    /// Passed on; the true status comes back with another body.
    ReplaceBody {
        /// The body.
        body: Vec<u8>,
        /// Its content type.
        content_type: HeaderValue,
    },
}

/// A fault and the requests that meet it.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<Method>,
    path_contains: String,
    fault: Fault,
    left: Option<u32>,
}

impl Rule {
    /// Requests with the method whose path and query contain the text.
    pub fn on(method: Method, path_contains: &str, fault: Fault) -> Self {
        Self {
            method: Some(method),
            path_contains: path_contains.to_owned(),
            fault,
            left: None,
        }
    }

    /// Requests with any method whose path and query contain the text; the empty text is in all.
    pub fn on_any(path_contains: &str, fault: Fault) -> Self {
        Self {
            method: None,
            path_contains: path_contains.to_owned(),
            fault,
            left: None,
        }
    }

    /// Only the next so many of them.
    pub fn times(mut self, times: u32) -> Self {
        self.left = Some(times);
        self
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        self.left != Some(0)
            && self.method.as_ref().is_none_or(|one| one == method)
            && path.contains(&self.path_contains)
    }
}

/// Names a rule of one proxy.
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

    /// The fault of the first rule that matches; uses up one of its times.
    pub(super) fn fault_for(&mut self, method: &Method, path: &str) -> Option<Fault> {
        let (_, rule) = self
            .all
            .iter_mut()
            .find(|(_, rule)| rule.matches(method, path))?;
        rule.left = rule.left.map(|left| left.saturating_sub(1));
        Some(rule.fault.clone())
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
}
