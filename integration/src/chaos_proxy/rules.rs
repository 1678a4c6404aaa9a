//! Rules that decide which request gets which fault.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
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
    /// Matches requests with the method whose path and query contain the text.
    pub fn on(method: Method, path_contains: &str, fault: Fault) -> Self {
        Self {
            method: Some(method),
            path_contains: path_contains.to_owned(),
            fault,
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
            left: None,
        }
    }

    /// Limits the rule to the next `times` matching requests.
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
