#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use insta::assert_snapshot;

use super::*;

mod audiences;
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

/// Findings as a person reads them: where, what, why, and the fix.
fn lines(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| {
        let place = match (finding.line, finding.column) {
            (Some(line), Some(column)) => format!("{line}:{column}"),
            _ => "-".to_owned(),
        };
        format!(
            "{place} {:?} {} {}\n  {}\n  fix: {}\n",
            finding.severity, finding.code, finding.path, finding.message, finding.fix
        )
    });
    lines.collect()
}

/// Each row is the list of entries of a file, and what `lint` says of it.
#[test]
fn the_findings_of_a_file_are_as_recorded() {
    let username = "    username: {claim: sub, prefix: 'h:'}\n";
    let one = entry(username).replace("[a]", "[a, b]\n    audienceMatchPolicy: MatchAny");
    let two = one.replace("https://hub", "https://other");
    let certificate = |words: &str| {
        let pem = format!("-----BEGIN CERTIFICATE-----\\n{words}\\n-----END CERTIFICATE-----");
        entry(username).replace("[a]", &format!("[a]\n    certificateAuthority: \"{pem}\""))
    };
    let groups = |expression: &str| {
        entry(&format!(
            "{username}    groups:\n      expression: \"{expression}\"\n"
        ))
    };
    let by_expressions = "    username:\n      expression: claims['email']\n    groups:\n      \
                          expression: claims.n + 1\n";
    let without_prefix = "    username:\n      claim: sub\n";
    let rows = [
        (
            "prefixes",
            entry(
                "    username:\n      claim: sub\n      prefix: ''\n    groups:\n      \
                 claim: g\n      prefix: 'system:x'\n",
            ),
        ),
        (
            "errors-of-the-apiserver",
            entry(without_prefix).replace("https", "http"),
        ),
        (
            "a-placeholder-of-a-certificate",
            certificate("(the CA of the discovery listener)"),
        ),
        ("no-certificate", certificate("AAAA")),
        (
            "traps-of-the-file-as-a-whole",
            format!("{one}{two}---\nmore: 1\n"),
        ),
        ("expressions", entry(by_expressions)),
        ("a-constant-of-masters", groups("['system:masters']")),
        (
            "a-name-of-masters",
            groups("claims.admin == true ? 'system:masters' : 'x'"),
        ),
    ];
    for (case, entries) in rows {
        let text = format!("{HEAD}{entries}");
        let findings = lint_file(text.as_bytes(), Minor::V1_33, &[]);
        assert_snapshot!(case, format!("{text}\n{}", lines(&findings)));
    }
    let text = format!("{HEAD}{}", entry(without_prefix));
    let own = lint_file(text.as_bytes(), Minor::V1_33, &["https://hub".to_owned()]);
    assert_snapshot!("the-issuer-of-the-target-itself", lines(&own));
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
    assert_snapshot!("an-unknown-field", lines(&findings));
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
    assert_snapshot!("a-newer-release", lines(&unknown));
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
