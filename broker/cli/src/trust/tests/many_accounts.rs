//! More ServiceAccounts than fit into one expression.

use super::*;

fn line(accounts: usize) -> Vec<String> {
    // Names of which one is the beginning of another, in namespaces that sort differently with the
    // colon after them.
    let allow = (0..accounts).map(|number| {
        let namespace = if number % 3 == 0 {
            "tenant"
        } else {
            "tenant-a"
        };
        format!("--allow={namespace}/reconciler-{number}")
    });
    let base = [
        "trust",
        "prod",
        "--issuer=https://hub.example.com",
        "--audience=https://prod",
    ];
    let rest = ["--prefix=hub:", "--max-lifetime=2h"];
    base.into_iter()
        .chain(rest)
        .map(str::to_owned)
        .chain(allow)
        .collect()
}

fn printed_for(accounts: usize, more: &[&str]) -> String {
    let line = line(accounts);
    let line: Vec<&str> = line
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    printed(&line)
        .unwrap_or_else(|problem| panic!("{accounts}: {problem}"))
        .text
}

#[test]
fn two_thousand_accounts_are_admitted_and_nobody_else() {
    for minor in [Minor::V1_30, Minor::V1_33, Minor::V1_37] {
        let file = printed_for(2000, &[&format!("--kubernetes={minor}")]);
        assert_eq!(errors(&file, minor), []);
        let loaded = config::load_configuration(file.as_bytes(), minor).unwrap();
        let rules = &loaded.configuration.jwt[0].claim_validation_rules;
        assert!(rules.len() > 5, "{} rules", rules.len());
        assert!(rules.iter().all(|rule| rule.expression.len() < 16 * 1024));
        let compiled = validate_configuration(&loaded.configuration, minor, &[]).unwrap();
        let now = jiff::Timestamp::from_second(token().issued_at).unwrap();
        let is_admitted = |namespace: &str, name: &str| {
            let token = ServiceAccountToken {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                ..token()
            };
            let verdict = verify_token(
                &compiled,
                &Token::of_service_account(&token),
                &Keys::none(),
                now,
            );
            matches!(verdict.union(), Union::Accepted(_))
        };
        for number in (0..2000).step_by(37).chain([1999]) {
            let (own, other) = if number % 3 == 0 {
                ("tenant", "tenant-a")
            } else {
                ("tenant-a", "tenant")
            };
            let name = format!("reconciler-{number}");
            assert!(is_admitted(own, &name), "{minor} {own}/{name}");
            assert!(!is_admitted(other, &name), "{minor} {other}/{name}");
        }
        for (namespace, name) in [
            ("a", "reconciler-1"),
            ("zz", "reconciler-1"),
            ("tenant-a", "reconciler-2001"),
            ("tenant-a", "reconciler-"),
            ("tenant-b", "x"),
        ] {
            assert!(!is_admitted(namespace, name), "{minor} {namespace}/{name}");
        }
    }
}

#[test]
fn every_bound_between_two_rules_is_exact() {
    // Around each bound: the subject itself, and those just before and after it.
    let file = printed_for(700, &[]);
    let loaded = config::load_configuration(file.as_bytes(), Minor::V1_37).unwrap();
    let compiled = validate_configuration(&loaded.configuration, Minor::V1_37, &[]).unwrap();
    let now = jiff::Timestamp::from_second(token().issued_at).unwrap();
    let all: std::collections::BTreeSet<String> = (0..700)
        .map(|number| {
            let namespace = if number % 3 == 0 {
                "tenant"
            } else {
                "tenant-a"
            };
            format!("{namespace}:reconciler-{number}")
        })
        .collect();
    for account in &all {
        for name in [
            account.clone(),
            format!("{account}0"),
            format!("{account}-"),
            account[..account.len() - 1].to_owned(),
        ] {
            let (namespace, name) = name.split_once(':').unwrap();
            let token = ServiceAccountToken {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                ..token()
            };
            let verdict = verify_token(
                &compiled,
                &Token::of_service_account(&token),
                &Keys::none(),
                now,
            );
            let is_admitted = matches!(verdict.union(), Union::Accepted(_));
            assert_eq!(
                is_admitted,
                all.contains(&format!("{namespace}:{name}")),
                "{namespace}:{name}"
            );
        }
    }
}

#[test]
fn a_list_that_fits_stays_one_rule() {
    let file = printed_for(150, &[]);
    let loaded = config::load_configuration(file.as_bytes(), Minor::V1_37).unwrap();
    assert_eq!(loaded.configuration.jwt[0].claim_validation_rules.len(), 3);
    assert!(!file.contains("In several rules"));
}

#[test]
fn the_difference_of_long_lists_is_their_accounts() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), printed_for(999, &[])).unwrap();
    let diff = format!("--diff={}", file.path().display());
    let line = line(1000);
    let line: Vec<&str> = line
        .iter()
        .map(String::as_str)
        .chain([diff.as_str()])
        .collect();
    let args = Line::try_parse_from(line)
        .map_err(|error| error.to_string())
        .unwrap()
        .args;
    let compared = diff::of_file(&args, None, file.path()).unwrap();
    assert!(
        compared.text.ends_with("\n1 difference"),
        "{}",
        compared.text
    );
    assert!(compared.text.contains("lacks") && compared.text.contains("tenant:reconciler-999"));
}
