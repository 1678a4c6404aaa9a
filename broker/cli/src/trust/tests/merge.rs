//! `--merge`: lists however they are written, and an entry that is there already.

use insta::assert_snapshot;

use super::*;

const HEAD: &str =
    "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n";

fn merged(old: &str) -> Result<Printed, String> {
    merged_with(old, &[])
}

fn merged_with(old: &str, more: &[&str]) -> Result<Printed, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), old).unwrap();
    let path = file.path().display().to_string();
    let flag = format!("--merge={path}");
    let named = |text: String| text.replace(&path, "FILE");
    let printed = printed(&[&HUB[..8], &[&flag], more].concat()).map_err(named)?;
    Ok(Printed {
        notes: printed.notes.into_iter().map(named).collect(),
        ..printed
    })
}

#[test]
fn an_empty_list_gets_its_first_entry_however_it_is_written() {
    for list in [
        "jwt: []\n",
        "jwt: [ ]\n",
        "jwt: []",
        "jwt: [] # none yet\n",
        "jwt:\n",
        "jwt: # none yet\n",
        "jwt: null\n",
        "jwt: ~\n",
        "jwt:\n  []\n",
        "jwt: [\n]\n",
        "jwt: [\n  # none yet\n]\n",
        "\"jwt\": []\n",
        "jwt : []\n",
        "",
    ] {
        for tail in ["", "# the end\n", "anonymous:\n  enabled: false\n"] {
            if !tail.is_empty() && !list.is_empty() && !list.ends_with('\n') {
                continue;
            }
            for end in ["\n", "\r\n"] {
                let old = format!("# ours\n{HEAD}{list}{tail}").replace('\n', end);
                let merged = merged(&old)
                    .unwrap_or_else(|why| panic!("{why}\n{old}"))
                    .text;
                assert!(user(&merged, Minor::V1_37, &token()).is_some(), "{merged}");
                let head = format!("# ours\n{HEAD}").replace('\n', end);
                assert!(merged.starts_with(&head), "{merged}");
                // Without a list, the new one comes last.
                let ends = merged.ends_with(&tail.replace('\n', end));
                assert!(ends || list.is_empty(), "{merged}");
                assert_eq!(
                    merged.contains("# none yet"),
                    list.contains("] #") || list.contains(": #")
                );
            }
        }
    }
}

#[test]
fn json_and_lists_in_flow_style_get_another_entry() {
    let entry = r#"{"issuer":{"url":"https://people","audiences":["k8s"]},"claimMappings":{"username":{"claim":"sub","prefix":"p:, ]"}}}"#;
    let json = |jwt: &str| {
        format!(
            r#"{{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration"{jwt}}}"#
        )
    };
    for (old, entries) in [
        (json(""), 1),
        (json(r#","jwt":[]"#), 1),
        (json(r#","jwt":null"#), 1),
        (json(&format!(r#","jwt":[{entry}]"#)), 2),
        (json(&format!(",\n  \"jwt\": [\n    {entry}\n  ]\n")), 2),
        (format!("{HEAD}jwt: [{entry}]\n"), 2),
        (
            format!("{HEAD}jwt: [{entry},] # it's ours ]\nanonymous: {{enabled: false}}\n"),
            2,
        ),
        (format!("{HEAD}jwt:\n  [\n    {entry}, # one ]\n  ]\n"), 2),
    ] {
        let merged = merged(&old)
            .unwrap_or_else(|why| panic!("{why}\n{old}"))
            .text;
        let loaded = config::load_configuration(merged.as_bytes(), Minor::V1_37).unwrap();
        assert_eq!(loaded.configuration.jwt.len(), entries, "{merged}");
        assert!(user(&merged, Minor::V1_37, &token()).is_some(), "{merged}");
    }
}

#[test]
fn an_entry_that_is_there_is_replaced_in_its_place() {
    let people = "  - issuer: {url: https://people, audiences: [k8s]}\n    claimMappings: {username: \
        {claim: sub, prefix: \"p:\"}}   # kept\n";
    let first = merged(&format!("{HEAD}jwt:\n{people}")).unwrap().text;
    // The file as it is: nothing changes, not even a byte.
    let again = merged(&first).unwrap();
    assert_eq!(again.text, first);
    assert_snapshot!("an-entry-that-is-as-it-should-be", again.notes.join("\n"));
    // One more account, between two entries of others and with comments around.
    let old = format!(
        "{first}  # the next one\n{}",
        people.replace("people", "others")
    );
    let changed = merged_with(&old, &["--allow=tenant-c/new"]).unwrap();
    assert_snapshot!("an-entry-that-is-replaced", with_notes(&changed));
    let loaded = config::load_configuration(changed.text.as_bytes(), Minor::V1_37).unwrap();
    let urls: Vec<&str> = loaded
        .configuration
        .jwt
        .iter()
        .map(|entry| entry.issuer.url.as_str())
        .collect();
    assert_eq!(
        urls,
        [
            "https://people",
            "https://hub.example.com",
            "https://others"
        ]
    );
    // What its admin added to the entry is shown as gone.
    let own = first.replace(
        "    claimMappings:\n      username:\n        claim: sub\n        # Never",
        "    userValidationRules: [{expression: \"user.username != 'x'\"}]\n    claimMappings:\n      \
         username:\n        claim: sub\n        # Never",
    );
    assert_ne!(own, first);
    let notes = merged(&own).unwrap().notes.join("\n");
    assert_snapshot!("an-entry-with-a-rule-of-its-admin", notes);
}

#[test]
fn an_entry_in_json_is_replaced_in_its_place() {
    let entry = |url: &str| {
        format!(
            r#"{{"issuer":{{"url":"{url}","audiences":["https://prod"]}},"claimMappings":{{"username":{{"claim":"sub","prefix":"p:"}}}}}}"#
        )
    };
    let old = format!(
        r#"{{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration","jwt":[{}, {}]}}"#,
        entry("https://hub.example.com"),
        entry("https://people")
    );
    let merged = merged(&old).unwrap();
    let loaded = config::load_configuration(merged.text.as_bytes(), Minor::V1_37).unwrap();
    assert_eq!(loaded.configuration.jwt.len(), 2);
    assert!(user(&merged.text, Minor::V1_37, &token()).is_some());
    assert!(
        merged
            .text
            .ends_with(&format!(", {}]}}", entry("https://people")))
    );
}

#[test]
fn the_issuers_entry_for_another_audience_is_left_alone() {
    let old = format!(
        "{HEAD}jwt:\n- issuer: {{url: https://hub.example.com, audiences: [https://dev]}}\n  \
         claimMappings: {{username: {{claim: sub, prefix: \"p:\"}}}}\n"
    );
    let problem = merged(&old).unwrap_err();
    assert_snapshot!("an-entry-for-another-audience", problem);
}

#[test]
fn a_file_inside_a_configmap_is_merged() {
    let old = format!(
        "kind: ConfigMap\ndata:\n  a.yaml: |\n{}",
        indented(&format!("{HEAD}jwt: []\n"), 4)
    );
    let merged = merged(&old).unwrap();
    assert!(user(&merged.text, Minor::V1_37, &token()).is_some());
    assert_snapshot!("a-file-inside-a-config-map", with_notes(&merged));
}

#[test]
fn k3s_and_rke2_stay_closed_to_anonymous_requests() {
    for format in ["k3s", "rke2"] {
        let flag = format!("--format={format}");
        for minor in Minor::ALL {
            let minor_flag = format!("--kubernetes={minor}");
            let line = [&HUB[..8], &[&flag, &minor_flag]].concat();
            let printed = printed(&line).unwrap();
            let file = inside(Format::K3s, &printed.text);
            let loaded = config::load_configuration(file.as_bytes(), minor).unwrap();
            let section = loaded.configuration.anonymous;
            let argument = printed.text.contains("- anonymous-auth=false");
            if minor >= Minor::V1_32 {
                assert!(
                    section.is_some_and(|section| !section.enabled),
                    "{minor}: {file}"
                );
                assert!(!argument, "kube-apiserver takes one of the two");
                assert!(
                    printed.files[0]
                        .text
                        .contains("anonymous:\n  enabled: false\n")
                );
            } else {
                assert!(section.is_none() && argument, "{minor}: {}", printed.text);
            }
        }
        // A merged file keeps what it says, and gets the section if it says nothing.
        let stated = format!(
            "{HEAD}anonymous: {{enabled: true, conditions: [{{path: /livez}}]}}\njwt: []\n"
        );
        let text = merged_with(&stated, &[&flag]).unwrap().text;
        assert!(
            text.contains("path: /livez") && !text.contains("enabled: false"),
            "{text}"
        );
        for silent in [
            format!("{HEAD}jwt: []\n"),
            format!("{HEAD}jwt: []\n# the end\n---\nmore: 1\n"),
            format!("{HEAD}jwt: []\n").replace('\n', "\r\n"),
            r#"{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthenticationConfiguration","jwt":[]}"#.to_owned(),
        ] {
            let printed = merged_with(&silent, &[&flag]).unwrap();
            let file = &printed.files[0].text;
            let loaded = config::load_configuration(file.as_bytes(), Minor::V1_37).unwrap();
            assert!(loaded.configuration.anonymous.is_some_and(|section| !section.enabled), "{file}");
        }
    }
    // Distributions without such a default get no section.
    for format in ["authn", "kubeadm", "kind", "capi", "talos-legacy"] {
        let flag = format!("--format={format}");
        let text = printed(&[&HUB[..8], &[&flag]].concat()).unwrap().text;
        assert!(!text.contains("anonymous"), "{format}");
    }
}

#[test]
fn talos_gets_its_default_section_unless_a_merged_file_has_one() {
    let silent = merged_with(&format!("{HEAD}jwt: []\n"), &["--format=talos"])
        .unwrap()
        .text;
    assert_snapshot!("talos-with-its-default-section", silent);
    let stated = format!("{HEAD}anonymous: {{enabled: false}}\njwt: []\n");
    let stated = merged_with(&stated, &["--format=talos"]).unwrap().text;
    assert_snapshot!("talos-with-a-section-of-its-admin", stated);
}
