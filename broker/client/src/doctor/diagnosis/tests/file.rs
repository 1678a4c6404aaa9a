//! The configuration file of the target as evidence.

use insta::assert_snapshot;

use super::*;

#[test]
fn a_file_names_the_cause_of_a_refusal() {
    let rule =
        "  claimValidationRules: [{expression: \"claims.sub == 'x'\", message: refused here}]\n";
    assert_broken(
        |e| (refused(e), e.configuration = file(rule)).1,
        Hop::Configuration,
        Code::ClaimRuleFalse,
    );
    let other = "  claimValidationRules: [{claim: hd, requiredValue: x}]\n";
    assert_broken(
        |e| (refused(e), e.configuration = file(other)).1,
        Hop::Configuration,
        Code::RequiredClaimMissing,
    );
    assert_broken(
        |e| {
            (
                refused(e),
                e.configuration = file(""),
                e.target.active = Some(loaded("sha256:0")),
            )
                .2
        },
        Hop::Configuration,
        Code::ConfigurationNotActive,
    );
    assert_undetermined(|e| {
        (
            refused(e),
            e.configuration = file(rule),
            e.target.minor = None,
        )
            .2
    });
}

/// Each row is what is known beside the file, and what the hop says of the file.
#[test]
fn the_hashes_decide_whether_a_file_is_active_and_are_shown() {
    type Row<'a> = (&'static str, &'a dyn Fn(&mut Evidence));
    let ours = hash_of(&file("").unwrap().bytes);
    let other = |evidence: &mut Evidence| evidence.target.active = Some(loaded("sha256:0"));
    let none = |evidence: &mut Evidence| {
        evidence.target.active = Some(ActiveConfiguration::default());
    };
    let without_a_token = |evidence: &mut Evidence| {
        evidence.token_evidence = TokenEvidence::None;
        evidence.target.identity = Identity::NotAsked;
    };
    let rows: [Row<'_>; 7] = [
        ("the target has another file", &other),
        ("and could not load the newest one", &|evidence| {
            evidence.target.active = Some(ActiveConfiguration {
                reload_failed: Timestamp::from_second(NOW).ok(),
                ..loaded("sha256:0")
            });
        }),
        ("another file, and no token", &|evidence| {
            without_a_token(evidence);
            other(evidence);
        }),
        ("this file, and no token", &|evidence| {
            without_a_token(evidence);
            evidence.target.active = Some(loaded(&ours));
        }),
        ("no loaded file", &none),
        // Before 1.34 there never is a hash.
        ("no hash before 1.34", &|evidence| {
            none(evidence);
            evidence.target.minor = Some(Minor::V1_33);
        }),
        // The target's own words are the cause, and the hashes stand beside them.
        ("a refusal by the target", &|evidence| {
            refused(evidence);
            other(evidence);
            evidence.configuration =
                file("  claimValidationRules: [{expression: \"claims.sub == 'x'\"}]\n");
            evidence.target.review = Some(Review::Refused("invalid bearer token".to_owned()));
        }),
    ];
    let shown = rows.map(|(name, edit)| {
        let mut evidence = sound();
        evidence.configuration = file("");
        edit(&mut evidence);
        let found = finding(&examine(&evidence), Hop::Configuration);
        let cause = found
            .cause
            .map_or("none".to_owned(), |cause| format!("{cause:?}"));
        format!(
            "{name}\n  {:?}, {cause}\n  {}\n",
            found.status, found.detail
        )
    });
    assert_snapshot!("the-hashes-of-a-file", shown.join("\n"));
}

#[test]
fn a_file_that_takes_what_the_target_refuses_is_not_active() {
    let refusal = |words: &str| Some(Review::Refused(words.to_owned()));
    let (unknown, audience) = (
        "invalid bearer token",
        "[invalid bearer token, oidc: verify token: oidc: expected audience \"a\" got [\"t\"]]",
    );
    for words in [unknown, audience] {
        assert_broken(
            |e| {
                (
                    refused(e),
                    e.configuration = file(""),
                    e.target.review = refusal(words),
                )
                    .2
            },
            Hop::Configuration,
            Code::ConfigurationNotActive,
        );
    }
    // The file refuses the token too, so the target's message is the cause.
    let rule = "  claimValidationRules: [{expression: \"claims.sub == 'x'\"}]\n";
    assert_broken(
        |e| {
            (
                refused(e),
                e.configuration = file(rule),
                e.target.review = refusal(unknown),
            )
                .2
        },
        Hop::Configuration,
        Code::IssuerDiffers,
    );
    let mut evidence = sound();
    refused(&mut evidence);
    evidence.target.review = refusal(unknown);
    let other = file("").map(|file| {
        String::from_utf8(file.bytes)
            .unwrap()
            .replace(ISSUER, "https://hub.example.com/")
    });
    evidence.configuration = other.map(|text| ConfigurationFile { bytes: text.into() });
    let detail = finding(&examine(&evidence), Hop::Configuration).detail;
    assert!(
        detail.contains("\"https://hub.example.com\"")
            && detail.contains("\"https://hub.example.com/\""),
        "{detail}"
    );
}

#[test]
fn a_name_that_is_not_the_hubs_is_broken_though_the_target_takes_the_token() {
    let known_identity = |name: &str| Identity::Known(name.to_owned());
    let subject = "system:serviceaccount:a:b";
    assert_broken(
        |e| e.target.identity = known_identity(subject),
        Hop::Authentication,
        Code::EmptyPrefix,
    );
    // Unlike for a refusal, an earlier undetermined hop does not hide this fault.
    assert_broken(
        |e| {
            (
                e.target.identity = known_identity(subject),
                e.target.skew = None,
                e.discovery = Fetched::NotTried,
            )
                .0
        },
        Hop::Authentication,
        Code::EmptyPrefix,
    );
    let other = format!("other:{subject}");
    assert_broken(
        |e| {
            (
                e.hub_name = Some("hub".to_owned()),
                e.target.identity = known_identity(&other),
            )
                .1
        },
        Hop::Authentication,
        Reason::IdentityUnexpected,
    );
    let mut evidence = sound();
    evidence.hub_name = Some("hub".to_owned());
    assert_eq!(
        finding(&examine(&evidence), Hop::Authentication).status,
        Status::Well
    );
    // If the target cannot be asked with the token itself, the TokenReview decides.
    assert_broken(
        |e| {
            (
                e.target.identity = Identity::NotAsked,
                e.target.review = Some(Review::Authenticated(subject.to_owned())),
            )
                .1
        },
        Hop::Authentication,
        Code::EmptyPrefix,
    );
}

#[test]
fn an_error_of_lint_breaks_the_file_though_it_takes_the_token() {
    let mut evidence = sound();
    evidence.configuration = file("");
    let with = |from: &str, to: &str| {
        let text = String::from_utf8(file("").unwrap().bytes).unwrap();
        assert!(text.contains(from));
        Some(ConfigurationFile {
            bytes: text.replace(from, to).into(),
        })
    };
    assert_ne!(
        finding(&examine(&evidence), Hop::Configuration).status,
        Status::Broken
    );
    assert_broken(
        |e| e.configuration = with("'hub:'", "''"),
        Hop::Configuration,
        Code::EmptyPrefix,
    );
    assert_broken(
        |e| e.configuration = with("'hub:'", "'system:hub:'"),
        Hop::Configuration,
        Code::SystemPrefix,
    );
}
