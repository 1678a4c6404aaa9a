//! Judges what the records say: only what they prove is a finding.

use std::collections::BTreeSet;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::lifetime;

use super::report::{
    FileReport, IssuanceReport, REPORT_SCHEMA, RecordKind, RequestReport, TokenReport, TraceCode,
    TraceNote, TraceReport, UsesReport,
};
use super::{ACCOUNT_OF_HUB, TokenIssuance, TokenRequest, TokenTrail, TokenUses, Trail};

/// How long kube-apiserver caches that it accepted a token, and how far clocks may differ.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(10);
/// How long a file of Keyferry's may be silent before the next one begins. A file that is rotated is
/// full, so its last record is rarely older.
const MAX_SILENCE: SignedDuration = SignedDuration::from_mins(5);
/// The most tokens that are shown with findings, and as many without.
const MAX_SHOWN_TOKENS: usize = 1_000;

/// Joins the records.
pub(super) fn report(trail: &Trail) -> TraceReport {
    let judge = Judge {
        trail,
        spans: recorded_spans(&trail.files),
    };
    let is_asked = trail.options.token.is_some();
    let (mut used_tokens, mut other_tokens) = (0, 0);
    let (mut with_findings, mut others) = (ShownTokens::default(), ShownTokens::default());
    for (id, token) in &trail.tokens {
        if !is_asked && !judge.is_of_hub(token) {
            other_tokens += 1;
            continue;
        }
        used_tokens += usize::from(token.uses.is_some());
        let notes = judge.notes(token);
        if notes.iter().any(|note| note.code.is_finding()) {
            with_findings.add(id, token, notes);
        } else if is_asked || !notes.is_empty() {
            others.add(id, token, notes);
        }
    }
    let undetermined = judge.notes_on_files();
    let is_open = with_findings.is_open || others.is_open || !undetermined.is_empty();
    TraceReport {
        schema: REPORT_SCHEMA,
        files: trail.files.clone(),
        used_tokens,
        other_tokens,
        has_findings: !with_findings.tokens.is_empty(),
        has_undetermined: is_open,
        undetermined,
        not_checked: judge.not_checked(),
        more_tokens: with_findings.more + others.more,
        tokens: [with_findings.tokens, others.tokens].concat(),
    }
}

/// The tokens of a list that are shown, in the order of their ids.
#[derive(Default)]
struct ShownTokens {
    tokens: Vec<TokenReport>,
    more: usize,
    /// Whether something about one of them is not known.
    is_open: bool,
}

impl ShownTokens {
    fn add(&mut self, id: &str, token: &TokenTrail, notes: Vec<TraceNote>) {
        self.is_open |= notes.iter().any(|note| !note.code.is_finding());
        if self.tokens.len() < MAX_SHOWN_TOKENS {
            self.tokens.push(token_report(id, token, notes));
        } else {
            self.more += 1;
        }
    }
}

struct Judge<'a> {
    trail: &'a Trail,
    /// The times of which Keyferry's files tell, without overlaps.
    spans: Vec<(Timestamp, Timestamp)>,
}

impl Judge<'_> {
    /// Whether a token is one of the hub's or of Keyferry's, and not of another issuer.
    fn is_of_hub(&self, token: &TokenTrail) -> bool {
        let users = token.uses.iter().flat_map(|uses| {
            let other = uses.other_user.iter();
            std::iter::once(&uses.user).chain(other)
        });
        token.issuance.is_some()
            || token.request.is_some()
            || users
                .into_iter()
                .any(|user| self.trail.options.is_user_of_hub(user))
    }

    fn notes(&self, token: &TokenTrail) -> Vec<TraceNote> {
        let mut notes: Vec<TraceNote> = Vec::new();
        if let Some(uses) = &token.uses {
            notes.extend(match &token.issuance {
                None => self.note_of_no_record(uses, token.request.as_deref()),
                Some(issuance) => after_end(uses, issuance),
            });
            if let Some(issuance) = &token.issuance {
                notes.extend(self.note_of_key(uses, issuance));
            }
            let is_probed = token
                .issuance
                .as_ref()
                .is_some_and(|issuance| issuance.is_probed);
            notes.extend(several_networks(uses, is_probed));
        }
        notes.extend(several_users(token));
        if token
            .request
            .as_ref()
            .is_some_and(|request| request.is_repeated)
        {
            let detail = "two TokenRequests on the hub have its id".to_owned();
            notes.push(TraceNote::new(TraceCode::RequestedTwice, detail));
        }
        if token.uses.is_none() && token.issuance.is_none() && token.request.is_none() {
            let detail = "no line of the files names it".to_owned();
            notes.push(TraceNote::new(TraceCode::NotSeen, detail));
        }
        notes.sort_by_key(|note| note.code);
        notes
    }

    /// The note on a token that was used, and that no record names.
    fn note_of_no_record(
        &self,
        uses: &TokenUses,
        request: Option<&TokenRequest>,
    ) -> Option<TraceNote> {
        let minters = &self.trail.options.minters;
        if request.is_some_and(|request| minters.contains(&*request.user)) {
            return None;
        }
        let unknown = |why: String| {
            let detail = format!("{why}, so whether Keyferry recorded it is not known");
            Some(TraceNote::new(TraceCode::RecordUnknown, detail))
        };
        // Keyferry issues no token for longer than the limit, so a record of this one would be in
        // this time.
        let (from, to) = match request {
            Some(request) => (request.at, request.at),
            None => {
                let longest = SignedDuration::try_from(lifetime::MAX).unwrap_or_default();
                (earlier(uses.last, longest), uses.first)
            }
        };
        if let Some(gap) = self.gap_of_records(from, to) {
            return unknown(gap);
        }
        let requested = match request {
            Some(request) => format!(
                "; {} requested it from the hub for {} at {}",
                ForeignText::new(&request.user),
                ForeignText::new(&request.account),
                request.at
            ),
            None => String::new(),
        };
        let files = self.files(RecordKind::Keyferry).count();
        let detail = format!(
            "{} used it, and none of the {files} file(s) of Keyferry's audit log names it{requested}",
            ForeignText::new(&uses.user)
        );
        Some(TraceNote::new(TraceCode::NotRecorded, detail))
    }

    /// Why Keyferry's files do not tell of a time; `None` if they do.
    fn gap_of_records(&self, from: Timestamp, to: Timestamp) -> Option<String> {
        let mut files = self.files(RecordKind::Keyferry);
        if self.trail.left_out > 0 {
            return Some("the bound of memory was reached".to_owned());
        }
        if files.any(|file| file.unreadable + file.too_long > 0) {
            return Some("lines of Keyferry's audit log cannot be read".to_owned());
        }
        let (Some((begin, _)), Some((_, end))) = (self.spans.first(), self.spans.last()) else {
            return Some("no file of Keyferry's audit log has a record".to_owned());
        };
        let (from, to) = (earlier(from, CLOCK_TOLERANCE), later(to, CLOCK_TOLERANCE));
        if self
            .spans
            .iter()
            .any(|(begin, end)| *begin <= from && to <= *end)
        {
            return None;
        }
        Some(if from < *begin {
            format!("the audit file begins at {begin}")
        } else if *end < to {
            format!("the audit file ends at {end}")
        } else {
            format!("the audit files have no record of a part of {from} to {to}")
        })
    }

    fn note_of_key(&self, uses: &TokenUses, issuance: &TokenIssuance) -> Option<TraceNote> {
        let revoked = &self.trail.options.keys.as_ref()?.revoked;
        let is_used_after = |at: Timestamp| uses.last > later(at, CLOCK_TOLERANCE);
        match &issuance.first.key_id {
            Some(kid) => {
                let key = revoked.iter().find(|key| key.kid == *kid)?;
                is_used_after(key.at).then(|| {
                    let detail = format!(
                        "its key {} was revoked at {}, and it was used until {}",
                        ForeignText::new(kid),
                        key.at,
                        uses.last
                    );
                    TraceNote::new(TraceCode::UsedAfterRevocation, detail)
                })
            }
            None => revoked.iter().any(|key| is_used_after(key.at)).then(|| {
                let detail = "its record names no key, and a key was revoked before its last use";
                TraceNote::new(TraceCode::KeyUnknown, detail.to_owned())
            }),
        }
    }

    fn files(&self, record: RecordKind) -> impl Iterator<Item = &FileReport> {
        let is_of = move |file: &&FileReport| file.record == record;
        self.trail.files.iter().filter(is_of)
    }

    /// What the files leave open about every token.
    fn notes_on_files(&self) -> Vec<TraceNote> {
        let mut notes = Vec::new();
        let mut add = |detail: String| {
            notes.push(TraceNote::new(TraceCode::FileIncomplete, detail));
        };
        for file in &self.trail.files {
            let path = &file.path;
            let bad = file.unreadable + file.too_long;
            if bad > 0 {
                add(format!(
                    "{path}: {bad} line(s) cannot be read or are too long"
                ));
            }
            if file.lines == 0 {
                add(format!("{path}: no line is of {}", name_of(file.record)));
            } else if file.record == RecordKind::Target && file.with_token == 0 {
                add(format!(
                    "{path}: no line names a token; kube-apiservers before 1.32 write none"
                ));
            } else if file.without_token > 0 {
                add(format!(
                    "{path}: {} line(s) of the hub's users name no token; hubs before 1.32 write no jti, and \
                     whoever has a key may leave it out",
                    file.without_token
                ));
            }
        }
        if self.trail.left_out > 0 {
            let detail = format!(
                "{} line(s) about further tokens were left out: {} MiB are in use",
                self.trail.left_out,
                super::MAX_MEMORY_BYTES >> 20
            );
            notes.push(TraceNote::new(TraceCode::TooManyTokens, detail));
        }
        notes
    }

    fn not_checked(&self) -> Vec<&'static str> {
        let mut not_checked = Vec::new();
        if self.trail.options.keys.is_none() {
            not_checked.push("use after the revocation of a key: give --keys");
        }
        let missing = [
            (RecordKind::Target, "uses: give --target-audit"),
            (RecordKind::Keyferry, "issuances: give --audit"),
            (RecordKind::Hub, "TokenRequests: give --hub-audit"),
        ];
        for (record, text) in missing {
            if self.files(record).next().is_none() {
                not_checked.push(text);
            }
        }
        not_checked
    }
}

fn name_of(record: RecordKind) -> &'static str {
    match record {
        RecordKind::Target | RecordKind::Hub => "a kube-apiserver's audit log",
        RecordKind::Keyferry => "Keyferry's audit log",
    }
}

/// The times of which Keyferry's files tell. Files that follow each other are one.
fn recorded_spans(files: &[FileReport]) -> Vec<(Timestamp, Timestamp)> {
    let of_keyferry = files
        .iter()
        .filter(|file| file.record == RecordKind::Keyferry);
    let mut spans: Vec<_> = of_keyferry
        .filter_map(|file| Some((file.since?, file.until?)))
        .collect();
    spans.sort();
    let mut merged: Vec<(Timestamp, Timestamp)> = Vec::new();
    for (begin, end) in spans {
        match merged.last_mut() {
            Some(last) if begin <= later(last.1, MAX_SILENCE) => last.1 = last.1.max(end),
            _ => merged.push((begin, end)),
        }
    }
    merged
}

fn after_end(uses: &TokenUses, issuance: &TokenIssuance) -> Option<TraceNote> {
    let end = issuance.expires_at?;
    (uses.last > later(end, CLOCK_TOLERANCE)).then(|| {
        let detail = format!("it ended at {end}, and was used until {}", uses.last);
        TraceNote::new(TraceCode::UsedAfterEnd, detail)
    })
}

/// Of a token with which Keyferry probes, requests that ask only who the user is do not count: the
/// cached token is Keyferry's and its client's.
fn several_networks(uses: &TokenUses, is_probed: bool) -> Option<TraceNote> {
    let networks = match is_probed {
        true => shown_networks(uses.networks.iter()),
        false => shown_networks(uses.networks.iter().chain(&uses.review_networks)),
    };
    (networks.len() > 1).then(|| {
        let detail = format!("it was used from {}", networks.join(", "));
        TraceNote::new(TraceCode::SeveralNetworks, detail)
    })
}

fn shown_networks<'a>(networks: impl Iterator<Item = &'a IpNet>) -> Vec<String> {
    let networks: BTreeSet<&IpNet> = networks.collect();
    networks.into_iter().map(ToString::to_string).collect()
}

/// Compares the users of one token, and the accounts that the records name.
fn several_users(token: &TokenTrail) -> Option<TraceNote> {
    if let Some(uses) = &token.uses
        && let Some(other) = &uses.other_user
    {
        let detail = format!(
            "targets saw {} and {}",
            ForeignText::new(&uses.user),
            ForeignText::new(other)
        );
        return Some(TraceNote::new(TraceCode::SeveralUsers, detail));
    }
    let at_target = token.uses.as_ref().and_then(|uses| {
        let (_, account) = uses.user.rsplit_once(ACCOUNT_OF_HUB)?;
        Some(account.replacen(':', "/", 1))
    });
    let issuance = token.issuance.as_deref();
    let accounts: BTreeSet<String> = [
        at_target,
        issuance.and_then(|issuance| issuance.first.account.clone()),
        issuance.and_then(|issuance| issuance.other_account.clone()),
        token
            .request
            .as_ref()
            .map(|request| request.account.to_string()),
    ]
    .into_iter()
    .flatten()
    .collect();
    (accounts.len() > 1).then(|| {
        let shown: Vec<String> = accounts
            .iter()
            .map(|account| ForeignText::new(account).to_string())
            .collect();
        let detail = format!("the records name the accounts {}", shown.join(", "));
        TraceNote::new(TraceCode::SeveralUsers, detail)
    })
}

fn token_report(id: &str, token: &TokenTrail, notes: Vec<TraceNote>) -> TokenReport {
    TokenReport {
        token_id: ForeignText::new(id),
        requested: token.request.as_deref().map(|request| RequestReport {
            at: request.at,
            user: ForeignText::new(&request.user),
            account: ForeignText::new(&request.account),
            from: request.from.map(|address| address.to_string()),
        }),
        recorded: token.issuance.as_deref().map(issuance_report),
        used: token.uses.as_ref().map(|uses| UsesReport {
            user: ForeignText::new(&uses.user),
            lines: uses.lines,
            first: uses.first,
            last: uses.last,
            networks: shown_networks(uses.networks.iter().chain(&uses.review_networks)),
            requests: uses.requests.clone(),
        }),
        notes,
    }
}

fn issuance_report(issuance: &TokenIssuance) -> IssuanceReport {
    let text = |text: &Option<String>| text.as_deref().map(ForeignText::new);
    let first = &issuance.first;
    IssuanceReport {
        at: issuance.at,
        records: issuance.records,
        route: ForeignText::new(&first.route),
        caller: text(&first.caller),
        access: text(&first.access),
        account: text(&first.account),
        target: text(&first.target),
        key_id: text(&first.key_id),
        expires_at: issuance.expires_at,
    }
}

fn earlier(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_sub(by).unwrap_or(at)
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(at)
}
