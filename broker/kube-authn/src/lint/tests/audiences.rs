//! Several audiences of one entry.

use super::*;

const MANY: &str = "- issuer:
    url: https://hub
    audiences: [p, p/view]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - expression: claims.aud.size() == 1
  - expression: \"claims.aud[0] != 'p' || claims.sub in ['a']\"
  - expression: \"claims.aud[0] != 'p/view' || claims.sub in ['b']\"
  - expression: claims.exp - claims.iat <= 60
  claimMappings:
    username:
      expression: \"{'p': 'h:', 'p/view': 'h:view:'}[claims.aud[0]] + claims.sub\"
    groups:
      expression: \"{'p': ['h:all'], 'p/view': ['h:role:view', 'h:role:view:' + claims.sub.split(':')[2]]}[claims.aud[0]]\"
";

/// The groups of [`MANY`].
const GROUPS: &str = "expression: \"{'p': ['h:all'], 'p/view': ['h:role:view', 'h:role:view:' + claims.sub.split(':')[2]]}[claims.aud[0]]\"\n";

#[test]
fn several_audiences_are_reported_unless_each_has_rules_and_names_of_its_own() {
    let warning = Some(Severity::Warning);
    for (case, from, to, expected) in [
        ("each has its own", "h:all", "h:all", None),
        (
            "no rule limits one",
            "  - expression: \"claims.aud[0] != 'p/view' || claims.sub in ['b']\"\n",
            "",
            warning,
        ),
        (
            "no rule refuses several",
            "  - expression: claims.aud.size() == 1\n",
            "",
            warning,
        ),
        (
            "a rule that admits several",
            "claims.aud.size() == 1",
            "claims.aud.size() >= 1",
            warning,
        ),
        ("a shared group", "'h:role:view',", "'h:all',", warning),
        (
            "groups of a claim",
            GROUPS,
            "claim: g\n      prefix: 'h:'\n",
            warning,
        ),
        (
            "a user that does not depend on the audience",
            "expression: \"{'p': 'h:', 'p/view': 'h:view:'}[claims.aud[0]] + claims.sub\"",
            "expression: \"'h:' + claims.sub\"",
            warning,
        ),
        (
            "an audience without a user",
            "'p/view': 'h:view:'}",
            "'p/edit': 'h:view:'}",
            warning,
        ),
        (
            "the same user",
            "'p/view': 'h:view:'}",
            "'p/view': 'h:'}",
            Some(Severity::Error),
        ),
    ] {
        assert!(MANY.contains(from), "{case}");
        for minor in [Minor::V1_30, Minor::V1_33, Minor::V1_37] {
            let text = format!("{HEAD}{}", MANY.replace(from, to));
            let findings = lint_file(text.as_bytes(), minor, &[]);
            let errors: Vec<_> = findings
                .iter()
                .filter(|it| it.severity == Severity::Error && it.code != Code::ManyAudiences)
                .collect();
            assert!(errors.is_empty(), "{case} {minor}: {errors:?}");
            let found = findings.iter().find(|it| it.code == Code::ManyAudiences);
            assert_eq!(found.map(|it| it.severity), expected, "{case} {minor}");
        }
    }
}
