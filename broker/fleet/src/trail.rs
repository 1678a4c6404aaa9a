//! The trail of tokens through three records: the TokenRequest in the audit log of the hub's
//! apiserver, the issuance in Keyferry's audit log, and the use in the audit log of a target's.
//! They are joined by the token's `jti`.
//!
//! A finding is only what the records prove. A record that begins later than a token, a line that
//! cannot be read or a bound that was reached makes an answer undetermined.
//!
//! ```
//! use keyferry_fleet::trail::{RecordKind, TraceOptions, Trail};
//!
//! let mut trail = Trail::new(TraceOptions::default());
//! trail.begin_file(RecordKind::Target, "target-audit.log");
//! trail.add_bytes(b"{\"kind\":\"Event\"}\n");
//! assert_eq!(trail.finish().files[0].unreadable, 1);
//! ```

mod event;
mod judge;
mod lines;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use keyferry_api::foreign_text::{self, ForeignText};

use self::event::AuditEvent;
pub use self::event::MAX_TOKEN_ID_BYTES;
use self::lines::{LineSplitter, SplitLine};
pub use self::report::{
    FileReport, IssuanceReport, RecordKind, RequestReport, TokenReport, TraceCode, TraceNote,
    TraceReport, UseReport, UsesReport,
};
use crate::audit_lines::{Issuance, LogLine, MAX_LINE_BYTES};
use crate::keys_document::KeysDocument;

/// The longest event that is read, in bytes: an etcd object of 1.5 MiB twice, and what is around it.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;
/// The most memory for tokens and the texts about them.
const MAX_MEMORY_BYTES: usize = 144 * 1024 * 1024;
/// What a token costs beside its texts, the tree that it is in included.
const TOKEN_BYTES: usize = 512;
/// The most characters of a text that is kept.
const MAX_TEXT: usize = 512;
/// The most networks of one token that are kept. More than one is a finding already.
const MAX_NETWORKS: usize = 8;
/// The most requests that are shown of the token that was asked for.
const MAX_REQUESTS: usize = 50;
/// What is between a user's prefix at a target and its account.
const ACCOUNT_OF_HUB: &str = ":system:serviceaccount:";
/// Addresses with the same leading bits are of one network, for IPv4 and IPv6.
const NETWORK_BITS: [u8; 2] = [24, 64];

/// What is asked, and what is known beside the files.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// The `jti` of the token that is asked for; all tokens with notes if there is none.
    pub token: Option<String>,
    /// The hub's name: its users at a target begin with it and a colon.
    pub hub_name: Option<String>,
    /// Users on the hub that may request tokens for targets without Keyferry.
    pub minters: BTreeSet<String>,
    /// Networks whose addresses count as one.
    pub networks: Vec<IpNet>,
    /// The hub's keys, for those that were revoked.
    pub keys: Option<KeysDocument>,
}

impl TraceOptions {
    /// Whether a user at a target looks like one of the hub's. The target's own ServiceAccounts have
    /// no prefix.
    fn is_user_of_hub(&self, user: &str) -> bool {
        match &self.hub_name {
            Some(name) => user
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.starts_with(':')),
            None => user.find(ACCOUNT_OF_HUB).is_some_and(|at| at > 0),
        }
    }
}

/// Reads the records, and joins them.
#[derive(Debug)]
pub struct Trail {
    options: TraceOptions,
    files: Vec<FileReport>,
    splitter: LineSplitter,
    tokens: BTreeMap<Box<str>, TokenTrail>,
    texts: BTreeSet<Arc<str>>,
    memory: usize,
    /// How many lines were left out because the bound of memory was reached.
    left_out: u64,
}

/// What the records say of one token.
#[derive(Debug, Default)]
struct TokenTrail {
    uses: Option<TokenUses>,
    issuance: Option<Box<TokenIssuance>>,
    request: Option<Box<TokenRequest>>,
}

#[derive(Debug)]
struct TokenUses {
    user: Arc<str>,
    other_user: Option<Arc<str>>,
    lines: u64,
    first: Timestamp,
    last: Timestamp,
    networks: Vec<IpNet>,
    /// Of requests that asked only who the user is.
    review_networks: Vec<IpNet>,
    requests: Vec<UseReport>,
}

#[derive(Debug)]
struct TokenIssuance {
    at: Timestamp,
    records: u64,
    first: Issuance,
    other_account: Option<String>,
    expires_at: Option<Timestamp>,
    is_probed: bool,
}

#[derive(Debug)]
struct TokenRequest {
    at: Timestamp,
    user: Arc<str>,
    account: Arc<str>,
    from: Option<IpAddr>,
    audit_id: String,
    is_repeated: bool,
}

impl Trail {
    /// Starts with no file.
    pub fn new(options: TraceOptions) -> Self {
        let mut tokens = BTreeMap::new();
        if let Some(token) = &options.token {
            tokens.insert(token.as_str().into(), TokenTrail::default());
        }
        Self {
            options,
            files: Vec::new(),
            splitter: LineSplitter::new(MAX_EVENT_BYTES),
            tokens,
            texts: BTreeSet::new(),
            memory: 0,
            left_out: 0,
        }
    }

    /// Begins with the next file. Files are read in the order of [`RecordKind`].
    pub fn begin_file(&mut self, record: RecordKind, path: &str) {
        self.end_file();
        self.files.push(FileReport {
            record,
            path: ForeignText::new(path),
            lines: 0,
            unreadable: 0,
            too_long: 0,
            with_token: 0,
            without_token: 0,
            since: None,
            until: None,
        });
        self.splitter = LineSplitter::new(match record {
            RecordKind::Keyferry => MAX_LINE_BYTES,
            RecordKind::Target | RecordKind::Hub => MAX_EVENT_BYTES,
        });
    }

    /// Takes the next bytes of the file.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let mut splitter = std::mem::replace(&mut self.splitter, LineSplitter::new(0));
        splitter.push(bytes, |line| self.add_line(line));
        self.splitter = splitter;
    }

    /// Judges what was read.
    pub fn finish(mut self) -> TraceReport {
        self.end_file();
        judge::report(&self)
    }

    fn end_file(&mut self) {
        let mut splitter = std::mem::replace(&mut self.splitter, LineSplitter::new(0));
        splitter.finish(|line| self.add_line(line));
    }

    fn add_line(&mut self, line: SplitLine<'_>) {
        let Some(file) = self.files.last_mut() else {
            return;
        };
        let (line, is_unfinished) = match line {
            SplitLine::Whole(line) => (line.trim_ascii(), false),
            SplitLine::Unfinished(line) => (line.trim_ascii(), true),
            SplitLine::TooLong => {
                file.too_long += 1;
                return;
            }
        };
        let record = file.record;
        if line.is_empty() {
            return;
        }
        let is_read = match record {
            RecordKind::Keyferry => self.add_record(line),
            RecordKind::Target => self.add_event(line, Self::add_use),
            RecordKind::Hub => self.add_event(line, Self::add_request),
        };
        // Half a line at the end of a file is still being written, or cut: nothing is known of the
        // time after it either way.
        if !is_read && !is_unfinished {
            self.count(|file| file.unreadable += 1);
        }
    }

    fn count(&mut self, change: impl FnOnce(&mut FileReport)) {
        if let Some(file) = self.files.last_mut() {
            change(file);
        }
    }

    fn note_time(&mut self, at: Timestamp) {
        self.count(|file| {
            file.lines += 1;
            file.since = Some(file.since.map_or(at, |since| since.min(at)));
            file.until = Some(file.until.map_or(at, |until| until.max(at)));
        });
    }

    /// Returns whether the line is an event.
    fn add_event(&mut self, line: &[u8], add: fn(&mut Self, &AuditEvent<'_>)) -> bool {
        let Some(event) = AuditEvent::read(line) else {
            return false;
        };
        self.note_time(event.received_at);
        add(self, &event);
        true
    }

    fn add_use(&mut self, event: &AuditEvent<'_>) {
        let Some(id) = event.used_token() else {
            if self.options.is_user_of_hub(&event.user.username) {
                self.count(|file| file.without_token += 1);
            }
            return;
        };
        self.count(|file| file.with_token += 1);
        if !self.follows(id) && !self.accept_token(id) {
            return;
        }
        let Some(user) = self.shared_text(&event.user.username) else {
            return;
        };
        let network = event.peer().map(|peer| self.network_of(peer));
        let is_asked = self.options.token.is_some();
        let Some(token) = self.tokens.get_mut(id) else {
            return;
        };
        let uses = token.uses.get_or_insert_with(|| TokenUses {
            user: Arc::clone(&user),
            other_user: None,
            lines: 0,
            first: event.received_at,
            last: event.received_at,
            networks: Vec::new(),
            review_networks: Vec::new(),
            requests: Vec::new(),
        });
        uses.lines += 1;
        uses.first = uses.first.min(event.received_at);
        uses.last = uses.last.max(event.received_at);
        if uses.user != user {
            uses.other_user.get_or_insert(user);
        }
        let networks = match event.is_self_review() {
            true => &mut uses.review_networks,
            false => &mut uses.networks,
        };
        if let Some(network) = network
            && networks.len() < MAX_NETWORKS
            && !networks.contains(&network)
        {
            networks.push(network);
        }
        if is_asked && uses.requests.len() < MAX_REQUESTS {
            uses.requests.push(UseReport::of(event));
        }
    }

    /// Whether what the records say of a token is kept already.
    fn follows(&self, id: &str) -> bool {
        self.tokens.contains_key(id)
    }

    /// Keeps a token that was used, unless another one is asked for or there is no memory for it.
    fn accept_token(&mut self, id: &str) -> bool {
        let is_accepted = self.options.token.is_none() && self.takes_memory(TOKEN_BYTES + id.len());
        if is_accepted {
            self.tokens.insert(id.into(), TokenTrail::default());
        }
        is_accepted
    }

    /// Counts memory; `false` if there is none left.
    fn takes_memory(&mut self, bytes: usize) -> bool {
        let is_within = self.memory + bytes <= MAX_MEMORY_BYTES;
        if is_within {
            self.memory += bytes;
        } else {
            self.left_out += 1;
        }
        is_within
    }

    /// Returns a text that others wrote, kept once; `None` if there is no memory for it.
    fn shared_text(&mut self, text: &str) -> Option<Arc<str>> {
        if let Some(kept) = self.texts.get(text) {
            return Some(Arc::clone(kept));
        }
        let shown: Arc<str> = foreign_text::one_line(text, MAX_TEXT).into();
        if let Some(kept) = self.texts.get(&shown) {
            return Some(Arc::clone(kept));
        }
        if !self.takes_memory(TOKEN_BYTES + shown.len()) {
            return None;
        }
        self.texts.insert(Arc::clone(&shown));
        Some(shown)
    }

    fn network_of(&self, address: IpAddr) -> IpNet {
        let networks = &self.options.networks;
        if let Some(network) = networks.iter().find(|network| network.contains(&address)) {
            return *network;
        }
        let bits = NETWORK_BITS[usize::from(address.is_ipv6())];
        IpNet::new(address, bits).map_or(IpNet::from(address), |network| network.trunc())
    }

    /// Returns whether the line can be read. A line of another log is none of a record's.
    fn add_record(&mut self, line: &[u8]) -> bool {
        let (issuance, at) = match LogLine::read(line) {
            LogLine::Record(issuance, at) => (*issuance, at),
            LogLine::Other => return true,
            LogLine::Unreadable => return false,
        };
        self.note_time(at);
        let Some(id) = issuance.token_id.clone() else {
            return true;
        };
        self.count(|file| file.with_token += 1);
        let kept = self.tokens.get(id.as_str());
        let is_first = kept.is_some_and(|token| token.issuance.is_none());
        if is_first && !self.takes_memory(TOKEN_BYTES + line.len()) {
            return true;
        }
        if let Some(token) = self.tokens.get_mut(id.as_str()) {
            match &mut token.issuance {
                Some(kept) => kept.add(issuance, at),
                None => token.issuance = Some(Box::new(TokenIssuance::new(issuance, at))),
            }
        }
        true
    }

    fn add_request(&mut self, event: &AuditEvent<'_>) {
        let Some(id) = event.issued_token() else {
            return;
        };
        self.count(|file| file.with_token += 1);
        let Some(token) = self.tokens.get_mut(id) else {
            return;
        };
        if let Some(request) = &mut token.request {
            // The same event may be in two files, and for two stages of its request.
            request.is_repeated |= request.audit_id != event.audit_id;
            return;
        }
        if !self.takes_memory(TOKEN_BYTES + event.audit_id.len()) {
            return;
        }
        let account = event.account().unwrap_or_default();
        let account = self.shared_text(&account);
        let (Some(user), Some(account)) = (self.shared_text(&event.user.username), account) else {
            return;
        };
        if let Some(token) = self.tokens.get_mut(id) {
            token.request = Some(Box::new(TokenRequest {
                at: event.received_at,
                user,
                account,
                from: event.peer(),
                audit_id: event.audit_id.clone().into_owned(),
                is_repeated: false,
            }));
        }
    }
}

impl TokenIssuance {
    fn new(first: Issuance, at: Timestamp) -> Self {
        Self {
            at,
            records: 1,
            expires_at: first.expires_at,
            is_probed: first.route == "probe",
            other_account: None,
            first,
        }
    }

    /// Adds a further record of the token, which Keyferry writes whenever it issues it from its cache.
    fn add(&mut self, issuance: Issuance, at: Timestamp) {
        self.records += 1;
        self.is_probed |= issuance.route == "probe";
        self.expires_at = self.expires_at.max(issuance.expires_at);
        if self.first.account != issuance.account && self.other_account.is_none() {
            self.other_account = issuance.account.clone();
        }
        if at < self.at {
            self.at = at;
            self.first = issuance;
        }
    }
}

impl UseReport {
    fn of(event: &AuditEvent<'_>) -> Self {
        Self {
            at: event.received_at,
            verb: ForeignText::new(&event.verb),
            path: ForeignText::new(event.path()),
            code: event.code(),
            from: event.peer().map(|peer| peer.to_string()),
            agent: ForeignText::new(&event.user_agent),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
