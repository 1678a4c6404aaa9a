#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

mod misread;

const HEAD: &str =
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt:\n";

fn entry(rest: &str) -> String {
    format!("- issuer:\n    url: https://hub\n    audiences: [a]\n  claimMappings:\n{rest}")
}

fn findings_of(text: &str) -> Vec<(Code, Severity, Option<u64>)> {
    lint_file(text.as_bytes(), Minor::V1_33, &[])
        .into_iter()
        .map(|finding| (finding.code, finding.severity, finding.line))
        .collect()
}

#[test]
fn prefixes() {
    let text = format!(
        "{HEAD}{}",
        entry(
            "    username:\n      claim: sub\n      prefix: ''\n    groups:\n      claim: \
             g\n      prefix: 'system:x'\n"
        )
    );
    let found = findings_of(&text);
    assert!(
        found.contains(&(Code::EmptyPrefix, Severity::Error, Some(10))),
        "{found:?}"
    );
    assert!(
        found.contains(&(Code::SystemPrefix, Severity::Error, Some(13))),
        "{found:?}"
    );
    assert!(
        found.contains(&(Code::NoLifetimeBound, Severity::Warning, Some(4))),
        "{found:?}"
    );
    assert!(
        found.contains(&(Code::NoAudienceCount, Severity::Warning, Some(4))),
        "{found:?}"
    );
}

#[test]
fn errors_of_the_apiserver_come_with_their_line() {
    let text =
        format!("{HEAD}{}", entry("    username:\n      claim: sub\n")).replace("https", "http");
    let found = findings_of(&text);
    assert!(
        found.contains(&(Code::UrlNotHttps, Severity::Error, Some(5))),
        "{found:?}"
    );
    assert!(
        found.contains(&(Code::PrefixMissing, Severity::Error, Some(8))),
        "{found:?}"
    );
    let own = lint_file(
        text.replace("http:", "https:").as_bytes(),
        Minor::V1_33,
        &["https://hub".to_owned()],
    );
    assert!(
        own.iter()
            .any(|finding| finding.code == Code::IssuerIsTargets)
    );
}

#[test]
fn a_placeholder_that_was_left_is_named() {
    let authority = |words: &str| {
        let pem = format!("-----BEGIN CERTIFICATE-----\\n{words}\\n-----END CERTIFICATE-----");
        let text = format!(
            "{HEAD}{}",
            entry("    username: {claim: sub, prefix: 'h:'}\n")
        );
        let text = text.replace("[a]", &format!("[a]\n    certificateAuthority: \"{pem}\""));
        let found = lint_file(text.as_bytes(), Minor::V1_33, &[]);
        found
            .into_iter()
            .find(|finding| finding.code == Code::AuthorityNotCertificates)
            .unwrap()
            .fix
    };
    assert!(authority("(the CA of the discovery listener)").contains("replace the placeholder"));
    assert!(authority("AAAA").contains("write the CA certificates"));
}

#[test]
fn traps_of_the_file_as_a_whole() {
    let one = entry("    username: {claim: sub, prefix: 'h:'}\n")
        .replace("[a]", "[a, b]\n    audienceMatchPolicy: MatchAny");
    let two = one.replace("https://hub", "https://other");
    let found = findings_of(&format!("{HEAD}{one}{two}---\nmore: 1\n"));
    for code in [Code::ManyAudiences, Code::ManyIssuers, Code::SecondDocument] {
        assert!(found.iter().any(|(found, ..)| *found == code), "{code}");
    }
}

#[test]
fn a_file_that_is_not_loaded_has_one_finding() {
    assert_eq!(
        findings_of("kind: 5\n"),
        [(Code::WrongFieldType, Severity::Error, None)]
    );
    assert_eq!(
        findings_of("1: x\n\"1\": y\n"),
        [(Code::UnusualYaml, Severity::Warning, None)]
    );
}

#[test]
fn an_unknown_field_has_its_place_and_where_it_belongs() {
    let text =
        format!("{HEAD}- prefix: 'hub:'\n  issuer:\n    url: https://hub\n    audiencez: [a]\n");
    let whole = "strict decoding error: unknown field \"jwt[0].issuer.audiencez\", unknown field \
        \"jwt[0].prefix\"";
    let findings = lint_file(text.as_bytes(), Minor::V1_33, &[]);
    let shown: Vec<_> = findings
        .iter()
        .map(|finding| {
            let place = (finding.line.unwrap(), finding.column.unwrap());
            (finding.path.as_str(), place, finding.message.as_str())
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("jwt[0].issuer.audiencez", (7, 5), whole),
            ("jwt[0].prefix", (4, 3), "unknown field \"jwt[0].prefix\"")
        ]
    );
    assert_eq!(findings[0].fix, "write audiences, or remove it");
    assert!(
        findings[1]
            .fix
            .starts_with("write it as jwt[0].claimMappings.username.prefix"),
        "{}",
        findings[1].fix
    );
    assert!(
        findings.iter().all(
            |finding| finding.code == Code::UnknownField && finding.severity == Severity::Error
        )
    );
    let sarif = to_sarif(&findings, "a.yaml", "0.1.0");
    let region = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"];
    assert_eq!(*region, json!({"startLine": 7, "startColumn": 5}));
    // Twice the same key is one error, whose text names the lines.
    let twice = lint_file(format!("{HEAD}jwt: []\n").as_bytes(), Minor::V1_33, &[]);
    assert_eq!(
        (twice[0].code, twice[0].path.as_str(), twice[0].line),
        (Code::DuplicateField, "", None)
    );
}

#[test]
fn for_a_newer_release_a_refusal_is_a_warning_and_a_danger_an_error() {
    let lint_newer = |text: &str| lint_release(text.as_bytes(), Release::Newer(38), &[], &[]);
    let unknown = lint_newer(&format!("{HEAD}- newField: 1\n"));
    assert_eq!(
        unknown
            .iter()
            .map(|finding| (finding.code, finding.severity))
            .collect::<Vec<_>>(),
        [
            (Code::NewerRelease, Severity::Warning),
            (Code::UnknownField, Severity::Warning)
        ]
    );
    assert!(
        unknown[0].message.contains("go-oidc v3"),
        "{}",
        unknown[0].message
    );
    let text = format!(
        "{HEAD}{}",
        entry("    username: {claim: sub, prefix: ''}\n")
    );
    assert!(
        lint_newer(&text)
            .iter()
            .any(|finding| finding.code == Code::EmptyPrefix && finding.severity == Severity::Error)
    );
    let known = lint_release(text.as_bytes(), Release::Known(Minor::V1_33), &[], &[]);
    assert_eq!(known, lint_file(text.as_bytes(), Minor::V1_33, &[]));
}

#[test]
fn expressions_are_looked_at() {
    let text = format!(
        "{HEAD}{}",
        entry(
            "    username:\n      expression: claims['email']\n    groups:\n      expression: \
             claims.n + 1\n"
        )
    );
    let codes: Vec<Code> = findings_of(&text)
        .into_iter()
        .map(|(code, ..)| code)
        .collect();
    assert!(
        codes.contains(&Code::EmailByIndex) && codes.contains(&Code::ArithmeticNotPortable),
        "{codes:?}"
    );
}

#[test]
fn findings_are_rendered() {
    let findings = lint_file(
        format!(
            "{HEAD}{}",
            entry("    username: {claim: sub, prefix: ''}\n")
        )
        .as_bytes(),
        Minor::V1_33,
        &[],
    );
    let json = to_json(Release::Known(Minor::V1_33), &findings);
    assert_eq!(json["schema"], SCHEMA_VERSION);
    assert!(
        json["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|finding| finding["code"] == "EmptyPrefix" && finding["severity"] == "Error")
    );
    let sarif = to_sarif(&findings, "trust/auth.yaml", "0.1.0");
    assert_eq!(sarif["version"], "2.1.0");
    let run = &sarif["runs"][0];
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), findings.len());
    for result in results {
        let rule = &run["tool"]["driver"]["rules"]
            [usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()];
        assert_eq!(rule["id"], result["ruleId"]);
        assert!(
            result["locations"][0]["physicalLocation"]["region"]["startLine"]
                .as_u64()
                .unwrap()
                >= 1
        );
    }
}

#[test]
fn constants_of_masters_are_errors() {
    let with = |expression: &str| {
        let rest = format!(
            "    username: {{claim: sub, prefix: \
             'h:'}}\n    groups:\n      expression: \"{expression}\"\n"
        );
        findings_of(&format!("{HEAD}{}", entry(&rest)))
    };
    assert!(with("['system:masters']").contains(&(
        Code::ConstantSystemMasters,
        Severity::Error,
        Some(10)
    )));
    let named = with("claims.admin == true ? 'system:masters' : 'x'");
    assert!(
        named.contains(&(Code::NamesSystemMasters, Severity::Warning, Some(10))),
        "{named:?}"
    );
}
