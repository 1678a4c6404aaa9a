//! The document of `keyferry trace`.

use jiff::Timestamp;
use keyferry_api::foreign_text::ForeignText;
use serde::Serialize;

/// The version of the document: `schema` of [`TraceReport`].
pub(super) const REPORT_SCHEMA: &str = "keyferry.dev/trace/v1";

/// Which record a file is of. They are read in this order: only a token that was used can be
/// misused, so the other two records say more about these tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordKind {
    /// The audit log of a target's kube-apiserver: uses of tokens.
    Target,
    /// Keyferry's audit log: issuances.
    Keyferry,
    /// The audit log of the hub's kube-apiserver: TokenRequests.
    Hub,
}

/// What is wrong with a token, or what the files leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum TraceCode {
    /// It was used, and Keyferry never recorded that it issued it.
    NotRecorded,
    /// It was used after its end.
    UsedAfterEnd,
    /// It was used after its signing key was revoked.
    UsedAfterRevocation,
    /// It was used from several networks.
    SeveralNetworks,
    /// The records name different users or accounts.
    SeveralUsers,
    /// The hub answered two TokenRequests with it.
    RequestedTwice,
    /// Whether Keyferry recorded it is not known.
    RecordUnknown,
    /// Whether its signing key was revoked is not known.
    KeyUnknown,
    /// No line of the files names it.
    NotSeen,
    /// A file cannot say whether a token was used or issued.
    FileIncomplete,
    /// The bound of memory was reached.
    TooManyTokens,
}

impl TraceCode {
    /// Whether something is wrong. Else it is not known.
    pub fn is_finding(self) -> bool {
        self <= Self::RequestedTwice
    }

    /// What to do about it.
    pub fn fix(self) -> &'static str {
        match self {
            Self::NotRecorded => {
                "ask who made the TokenRequest; if no one may, treat Keyferry's account or the hub's \
                 key as stolen; --minter USER is for an account that may, as Flux"
            }
            Self::UsedAfterEnd => {
                "compare the clocks of the hub and the target, and ask the target why it accepted it"
            }
            Self::UsedAfterRevocation => {
                "let the target's apiservers reload the hub's keys: run keyferry revoke again with a witness, \
                 or restart them"
            }
            Self::SeveralNetworks => {
                "if its client is in one network, treat the token as leaked; --same-network CIDR is for a \
                 network that its clients share"
            }
            Self::SeveralUsers => {
                "compare the target's AuthenticationConfiguration with keyferry trust, and its audit log with that of another apiserver"
            }
            Self::RequestedTwice => {
                "compare the hub's audit log with that of another apiserver: no apiserver gives two tokens one id"
            }
            Self::RecordUnknown => {
                "give every file of Keyferry's audit log, of all replicas, with --audit"
            }
            Self::KeyUnknown => {
                "records from before this version name no key; compare the token's issue with the time of the revocation"
            }
            Self::NotSeen => "give the files of the time when it was issued and used",
            Self::FileIncomplete => {
                "give the whole file, from an audit policy that records each request at level Metadata or above"
            }
            Self::TooManyTokens => "name one token, or give fewer files at once",
        }
    }
}

/// A finding, or something that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceNote {
    /// Its code.
    pub code: TraceCode,
    /// What is wrong, or not known.
    pub detail: String,
    /// What to do about it.
    pub fix: &'static str,
}

impl TraceNote {
    pub(super) fn new(code: TraceCode, detail: String) -> Self {
        Self {
            code,
            detail,
            fix: code.fix(),
        }
    }
}

/// What the records say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceReport {
    /// The version of the document.
    pub schema: &'static str,
    /// The files, in the order in which they were read.
    pub files: Vec<FileReport>,
    /// The token that was asked for, or those with notes, the findings first.
    pub tokens: Vec<TokenReport>,
    /// How many tokens with notes are not shown.
    pub more_tokens: usize,
    /// How many tokens for which Keyferry is responsible were used.
    pub used_tokens: usize,
    /// How many tokens of other issuers were used, which are not judged.
    pub other_tokens: usize,
    /// What the files leave open about all tokens.
    pub undetermined: Vec<TraceNote>,
    /// Whether a token has a finding.
    pub has_findings: bool,
    /// Whether something is not known.
    pub has_undetermined: bool,
    /// What was not looked for.
    pub not_checked: Vec<&'static str>,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileReport {
    /// Which record it is of.
    pub record: RecordKind,
    /// Its path.
    pub path: ForeignText,
    /// How many records or events were read.
    pub lines: u64,
    /// How many lines are cut, no JSON, or of another form.
    pub unreadable: u64,
    /// How many lines exceed the limit of a line.
    pub too_long: u64,
    /// How many events name a token.
    pub with_token: u64,
    /// How many events of the hub's users name none.
    pub without_token: u64,
    /// The earliest time in it.
    pub since: Option<Timestamp>,
    /// The latest time in it.
    pub until: Option<Timestamp>,
}

/// One token in the three records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenReport {
    /// Its `jti`.
    pub token_id: ForeignText,
    /// The TokenRequest on the hub.
    pub requested: Option<RequestReport>,
    /// The first record of its issuance.
    pub recorded: Option<IssuanceReport>,
    /// Its uses.
    pub used: Option<UsesReport>,
    /// What is wrong, and what is not known.
    pub notes: Vec<TraceNote>,
}

/// The TokenRequest on the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestReport {
    /// When the hub received it.
    pub at: Timestamp,
    /// Who sent it.
    pub user: ForeignText,
    /// For which ServiceAccount.
    pub account: ForeignText,
    /// From which address.
    pub from: Option<String>,
}

/// The issuance in Keyferry's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuanceReport {
    /// When it was first issued.
    pub at: Timestamp,
    /// How many records name it: a cached token is issued several times.
    pub records: u64,
    /// The route of the first one.
    pub route: ForeignText,
    /// Who got it first.
    pub caller: Option<ForeignText>,
    /// The access.
    pub access: Option<ForeignText>,
    /// Its ServiceAccount.
    pub account: Option<ForeignText>,
    /// The target.
    pub target: Option<ForeignText>,
    /// The key that signed it.
    pub key_id: Option<ForeignText>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// The uses at targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsesReport {
    /// As which user.
    pub user: ForeignText,
    /// How many lines name it. A request may have several, one for each stage.
    pub lines: u64,
    /// The first time.
    pub first: Timestamp,
    /// The last time.
    pub last: Timestamp,
    /// From which networks, up to 16.
    pub networks: Vec<String>,
    /// The first requests, if one token was asked for.
    pub requests: Vec<UseReport>,
}

/// One request with the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UseReport {
    /// When it arrived.
    pub at: Timestamp,
    /// Its verb.
    pub verb: ForeignText,
    /// Its path.
    pub path: ForeignText,
    /// The status of the answer.
    pub code: Option<i32>,
    /// The address of the connection.
    pub from: Option<String>,
    /// What the client calls itself.
    pub agent: ForeignText,
}
