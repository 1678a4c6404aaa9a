//! Compares the fields of two entries of the `jwt` list.

use std::collections::{BTreeMap, BTreeSet};

use keyferry_keys::ca_bundle::CaBundle;
use keyferry_kube_authn::config::{
    ClaimMappings, ClaimValidationRule, Issuer, JwtAuthenticator, PrefixedClaimOrExpression,
    UserValidationRule,
};
use keyferry_kube_authn::prediction::hash_of;
use keyferry_platform::clock::{Clock, SystemClock};

use super::expression::Meaning;
use super::{Change, Difference, quoted};

/// Returns every difference between an entry and the one that it should be. `path` is the place of
/// the entry in its file, and `targets` are its audiences, each with its TargetCluster.
///
/// The rules are compared for each audience as if the entry had only this one. So it does not count
/// whether they are written for one audience or for several.
pub(super) fn differences(
    path: &str,
    has: &JwtAuthenticator,
    should: &JwtAuthenticator,
    targets: &[(&str, &str)],
) -> Vec<Difference> {
    let mut whole = EntryDifferences::new(path, None);
    whole.issuer(&has.issuer, &should.issuer, targets);
    let compare = |audience| {
        let mut compared = EntryDifferences::new(path, audience);
        compared.authenticator(has, should);
        compared.differences
    };
    if let [(audience, _)] = targets {
        let is_plain = has.issuer.audiences.len() <= 1;
        whole
            .differences
            .extend(compare((!is_plain).then_some(*audience)));
        return whole.differences;
    }
    // What the file lacks as a whole is one difference, and not one for each of its rules.
    let accepted = |audience: &str| has.issuer.audiences.iter().any(|one| one == audience);
    let compared: Vec<(&str, Vec<Difference>)> = targets
        .iter()
        .filter(|(audience, _)| accepted(audience))
        .map(|(audience, target)| (*target, compare(Some(*audience))))
        .collect();
    for (target, differences) in &compared {
        for difference in differences {
            let is_of_all = compared.len() > 1
                && compared
                    .iter()
                    .all(|(_, others)| others.contains(difference));
            let named = Difference {
                target: (!is_of_all).then(|| (*target).to_owned()),
                ..difference.clone()
            };
            if !whole.differences.contains(&named) {
                whole.differences.push(named);
            }
        }
    }
    whole.differences
}

/// A rule on the claims or on the user.
struct Rule<'a> {
    /// Its place in the list; that of the first one, if several are one rule.
    index: usize,
    claim: &'a str,
    required_value: &'a str,
    expression: &'a str,
    message: &'a str,
    meaning: Meaning,
}

impl<'a> Rule<'a> {
    /// Reads the rules that concern the tokens for one audience.
    fn of_claim_rules(rules: &'a [ClaimValidationRule], audience: Option<&str>) -> Vec<Self> {
        let rules = rules.iter().enumerate().filter_map(|(index, rule)| {
            Some(Self {
                index,
                claim: &rule.claim,
                required_value: &rule.required_value,
                expression: &rule.expression,
                message: &rule.message,
                meaning: Meaning::at_audience(&rule.expression, audience)?,
            })
        });
        Self::with_joined_ranges(rules.collect())
    }

    fn of_user_rules(rules: &'a [UserValidationRule]) -> Vec<Self> {
        let rules = rules.iter().enumerate().map(|(index, rule)| Self {
            index,
            claim: "",
            required_value: "",
            expression: &rule.expression,
            message: &rule.message,
            meaning: Meaning::of(&rule.expression),
        });
        rules.collect()
    }

    /// Replaces the rules of all ranges of subjects by one rule, if no subject is in no range.
    fn with_joined_ranges(rules: Vec<Self>) -> Vec<Self> {
        let Some(subjects) = Meaning::joined(rules.iter().map(|rule| &rule.meaning)) else {
            return rules;
        };
        let mut subjects = Some(Meaning::Subjects(subjects));
        rules
            .into_iter()
            .filter_map(|rule| match rule.meaning {
                Meaning::SubjectRange { .. } => {
                    let meaning = subjects.take()?;
                    Some(Self { meaning, ..rule })
                }
                _ => Some(rule),
            })
            .collect()
    }

    fn decides_like(&self, other: &Self) -> bool {
        (self.claim, self.required_value, &self.meaning)
            == (other.claim, other.required_value, &other.meaning)
    }

    /// Whether both are about the same claim, so that one is a changed version of the other.
    fn is_about(&self, other: &Self) -> bool {
        self.claim == other.claim && self.meaning.topic() == other.meaning.topic()
    }

    fn shown(&self) -> String {
        if self.claim.is_empty() {
            format!("expression {}", quoted(self.expression))
        } else {
            format!(
                "claim {}, requiredValue {}",
                quoted(self.claim),
                quoted(self.required_value)
            )
        }
    }
}

/// The differences of an entry that were found so far.
struct EntryDifferences<'a> {
    path: &'a str,
    /// The audience for which rules are compared; `None` where the entries have only one.
    audience: Option<&'a str>,
    differences: Vec<Difference>,
}

impl<'a> EntryDifferences<'a> {
    fn new(path: &'a str, audience: Option<&'a str>) -> Self {
        Self {
            path,
            audience,
            differences: Vec::new(),
        }
    }

    fn authenticator(&mut self, has: &JwtAuthenticator, should: &JwtAuthenticator) {
        self.rules(
            "claimValidationRules",
            &Rule::of_claim_rules(&has.claim_validation_rules, self.audience),
            &Rule::of_claim_rules(&should.claim_validation_rules, self.audience),
        );
        self.mappings(&has.claim_mappings, &should.claim_mappings);
        self.rules(
            "userValidationRules",
            &Rule::of_user_rules(&has.user_validation_rules),
            &Rule::of_user_rules(&should.user_validation_rules),
        );
    }

    fn add(&mut self, field: &str, change: Change) {
        self.differences.push(Difference {
            target: None,
            path: format!("{}.{field}", self.path),
            change,
        });
    }

    /// Compares a value; `None` is an absent one.
    fn value(&mut self, field: &str, has: Option<String>, should: Option<String>) {
        match (has, should) {
            (None, Some(should)) => self.add(field, Change::Lacks(should)),
            (Some(has), None) => self.add(field, Change::TooMuch(has)),
            (Some(has), Some(should)) if has != should => {
                self.add(field, Change::Differs { has, should });
            }
            _ => {}
        }
    }

    /// Compares a text, of which an empty one is absent.
    fn text(&mut self, field: &str, has: &str, should: &str) {
        let given = |text: &str| (!text.is_empty()).then(|| quoted(text));
        self.value(field, given(has), given(should));
    }

    fn set(&mut self, field: &str, has: &BTreeSet<String>, should: &BTreeSet<String>) {
        for one in should.difference(has) {
            self.add(field, Change::Lacks(one.clone()));
        }
        for one in has.difference(should) {
            self.add(field, Change::TooMuch(one.clone()));
        }
    }

    fn issuer(&mut self, has: &Issuer, should: &Issuer, targets: &[(&str, &str)]) {
        self.text(
            "issuer.discoveryURL",
            &has.discovery_url,
            &should.discovery_url,
        );
        // If it is unknown which certificates there should be, none are compared.
        if !should.certificate_authority.is_empty() {
            self.set(
                "issuer.certificateAuthority",
                &certificates(&has.certificate_authority),
                &certificates(&should.certificate_authority),
            );
        }
        let audiences = |issuer: &Issuer| issuer.audiences.iter().map(|one| quoted(one)).collect();
        let before = self.differences.len();
        self.set("issuer.audiences", &audiences(has), &audiences(should));
        for difference in self.differences.iter_mut().skip(before) {
            let of = targets.iter().filter(|_| targets.len() > 1);
            let is_lacking = |audience: &str| difference.change == Change::Lacks(quoted(audience));
            let lacking = of.copied().find(|(audience, _)| is_lacking(audience));
            difference.target = lacking.map(|(_, target)| target.to_owned());
        }
        // For one audience, MatchAny is what an absent policy is.
        let policy = |issuer: &Issuer| match issuer.audience_match_policy.as_str() {
            "MatchAny" if issuer.audiences.len() <= 1 => String::new(),
            policy => policy.to_owned(),
        };
        self.text("issuer.audienceMatchPolicy", &policy(has), &policy(should));
        self.text(
            "issuer.egressSelectorType",
            &has.egress_selector_type,
            &should.egress_selector_type,
        );
    }

    fn mappings(&mut self, has: &ClaimMappings, should: &ClaimMappings) {
        self.prefixed("claimMappings.username", &has.username, &should.username);
        self.prefixed("claimMappings.groups", &has.groups, &should.groups);
        self.text("claimMappings.uid.claim", &has.uid.claim, &should.uid.claim);
        self.expression(
            "claimMappings.uid.expression",
            &has.uid.expression,
            &should.uid.expression,
        );
        let should: BTreeMap<&str, &str> = should
            .extra
            .iter()
            .map(|extra| (extra.key.as_str(), extra.value_expression.as_str()))
            .collect();
        for (index, extra) in has.extra.iter().enumerate() {
            let wanted = should.get(extra.key.as_str()).copied().unwrap_or_default();
            let field = format!("claimMappings.extra[{index}]");
            if wanted.is_empty() {
                self.add(
                    &field,
                    Change::TooMuch(format!("key {}", quoted(&extra.key))),
                );
            } else {
                let field = format!("{field}.valueExpression");
                self.expression(&field, &extra.value_expression, wanted);
            }
        }
        for key in should.keys() {
            if !has.extra.iter().any(|extra| extra.key == *key) {
                self.add(
                    "claimMappings.extra",
                    Change::Lacks(format!("key {}", quoted(key))),
                );
            }
        }
    }

    fn prefixed(
        &mut self,
        field: &str,
        has: &PrefixedClaimOrExpression,
        should: &PrefixedClaimOrExpression,
    ) {
        let (has, should) = (&self.as_claim(has), &self.as_claim(should));
        self.text(&format!("{field}.claim"), &has.claim, &should.claim);
        let prefix = |source: &PrefixedClaimOrExpression| source.prefix.as_deref().map(quoted);
        self.value(&format!("{field}.prefix"), prefix(has), prefix(should));
        self.expression(
            &format!("{field}.expression"),
            &has.expression,
            &should.expression,
        );
    }

    /// Writes an expression that prefixes a user's subject, for one of several audiences, as a claim
    /// with a prefix.
    fn as_claim(&self, source: &PrefixedClaimOrExpression) -> PrefixedClaimOrExpression {
        let meaning = match self.audience {
            Some(_) => Meaning::at_audience(&source.expression, self.audience),
            None => None,
        };
        let prefix = match &meaning {
            Some(Meaning::Text(text)) => text
                .strip_prefix('\'')
                .and_then(|text| text.strip_suffix("'+claims.sub"))
                .filter(|prefix| !prefix.contains('\'')),
            _ => None,
        };
        match prefix {
            Some(prefix) => PrefixedClaimOrExpression {
                claim: "sub".to_owned(),
                prefix: Some(prefix.to_owned()),
                expression: String::new(),
            },
            None => source.clone(),
        }
    }

    fn expression(&mut self, field: &str, has: &str, should: &str) {
        let meaning = |expression: &str| Meaning::at_audience(expression, self.audience);
        if meaning(has) != meaning(should) {
            self.text(field, has, should);
        }
    }

    /// Compares two lists of rules. All rules of a list must hold, so their order does not count.
    fn rules(&mut self, field: &str, has: &[Rule<'_>], should: &[Rule<'_>]) {
        let mut left: Vec<(usize, &Rule<'_>)> = has.iter().map(|rule| (rule.index, rule)).collect();
        let mut lacking = Vec::new();
        for rule in should {
            match left.iter().position(|(_, known)| known.decides_like(rule)) {
                Some(place) => {
                    let (index, known) = left.remove(place);
                    self.text(
                        &format!("{field}[{index}].message"),
                        known.message,
                        rule.message,
                    );
                }
                None => lacking.push(rule),
            }
        }
        for rule in lacking {
            match left.iter().position(|(_, known)| known.is_about(rule)) {
                Some(place) => {
                    let (index, known) = left.remove(place);
                    self.changed(&format!("{field}[{index}]"), known, rule);
                }
                None => self.add(field, Change::Lacks(rule.shown())),
            }
        }
        for (index, rule) in left {
            self.add(&format!("{field}[{index}]"), Change::TooMuch(rule.shown()));
        }
    }

    /// Compares a rule with the rule that it should be.
    fn changed(&mut self, field: &str, has: &Rule<'_>, should: &Rule<'_>) {
        self.text(
            &format!("{field}.requiredValue"),
            has.required_value,
            should.required_value,
        );
        let field_of_expression = format!("{field}.expression");
        match (&has.meaning, &should.meaning) {
            (Meaning::Subjects(theirs), Meaning::Subjects(ours)) => {
                let shown = |subjects: &BTreeSet<String>| {
                    subjects
                        .iter()
                        .map(|one| quoted(one))
                        .collect::<BTreeSet<_>>()
                };
                self.set(&field_of_expression, &shown(theirs), &shown(ours));
            }
            _ => self.expression(&field_of_expression, has.expression, should.expression),
        }
        self.text(&format!("{field}.message"), has.message, should.message);
    }
}

/// Returns the certificates of a PEM text by their hashes, so that their order, and what is between
/// them, does not count.
fn certificates(pem: &str) -> BTreeSet<String> {
    if pem.trim().is_empty() {
        return BTreeSet::new();
    }
    match CaBundle::from_pem(pem.as_bytes(), SystemClock::start().now().wall) {
        Ok(bundle) => bundle
            .certificates()
            .iter()
            .map(|certificate| format!("the certificate with {}", hash_of(certificate)))
            .collect(),
        // The target reads them, or refuses the file. Here they are only known to be others.
        Err(error) => [format!("certificates that are not used here: {error}")].into(),
    }
}
