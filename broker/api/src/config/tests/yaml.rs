//! The file as YAML: which features it may use, and how kubectl would read it.

use super::{GOOD, edited, mistakes_of, read};
use crate::config::Mistake;

fn only(text: &str) -> Mistake {
    let found = mistakes_of(text);
    assert_eq!(found.len(), 1, "{found:#?}\n{text}");
    found[0].clone()
}

#[test]
fn a_file_is_headed_by_one_server_configuration() {
    for text in ["", "\n", "# nothing\n", "---\n", "---\n---\n", "null\n"] {
        let mistake = only(text);
        assert!(
            mistake.problem.contains("holds no ServerConfiguration")
                && mistake.fix.contains("first document"),
            "{text:?}: {mistake}"
        );
        assert_eq!(mistake.line, 0, "there is no better place than the file");
    }
    let (head, rest) = GOOD.split_once("---\n").unwrap();
    assert!(only(rest).problem.contains("holds no ServerConfiguration"));
    let twice = only(&format!("{GOOD}---\n{head}"));
    assert_eq!(
        (twice.path.as_str(), twice.line),
        ("kind", GOOD.lines().count() as u64 + 3)
    );
    assert!(
        twice.problem.contains("a second ServerConfiguration"),
        "{twice}"
    );
    let late = only(&format!("{rest}---\n{head}"));
    assert_eq!(
        (late.path.as_str(), late.line),
        ("kind", rest.lines().count() as u64 + 3)
    );
    assert!(late.problem.contains("not the first document"), "{late}");
    let wrong = mistakes_of(&format!(
        "{rest}---\n{}",
        head.replace("hubName: hub", "hubName: HUB")
    ));
    assert_eq!(
        wrong
            .iter()
            .map(|mistake| mistake.path.as_str())
            .collect::<Vec<_>>(),
        ["kind", "hubName"],
        "late, and read all the same"
    );
}

#[test]
fn empty_documents_do_not_count() {
    assert!(read(&format!("# a file\n---\n{GOOD}")).is_ok());
    assert!(read(&format!("---\n{GOOD}---\n# the end\n")).is_ok());
    assert!(read(&GOOD.replace('\n', "\r\n")).is_ok());
    assert!(read(&format!("\u{feff}{GOOD}")).is_ok());
}

#[test]
fn other_objects_are_refused() {
    let added = |object: &str| only(&format!("{GOOD}---\n{object}"));
    let line = GOOD.lines().count() as u64 + 2;
    for (object, path, line, problem, fix) in [
        (
            "apiVersion: v1\nkind: Secret\n",
            "kind",
            line + 1,
            "\"Secret\" is not an object",
            "TargetCluster and TargetAccess",
        ),
        (
            "apiVersion: keyferry.dev/v1alpha1\n",
            "kind",
            line,
            "\"\" is not an object",
            "ServerConfiguration first",
        ),
        (
            "apiVersion: keyferry.dev/v1\nkind: TargetCluster\n",
            "apiVersion",
            line,
            "keyferry.dev/v1",
            "write keyferry.dev/v1alpha1",
        ),
        (
            "kind: TargetAccess\n",
            "apiVersion",
            line,
            "has no TargetAccess",
            "write keyferry.dev/v1alpha1",
        ),
        (
            "apiVersion: 5\nkind: TargetAccess\n",
            "apiVersion",
            line,
            "has no TargetAccess",
            "write keyferry.dev/v1alpha1",
        ),
        (
            "kind: [TargetAccess]\n",
            "kind",
            line,
            "not an object that this file",
            "ServerConfiguration first",
        ),
        (
            "- a\n- b\n",
            "",
            line,
            "not a mapping",
            "apiVersion and kind",
        ),
        ("a word\n", "", line, "not a mapping", "apiVersion and kind"),
        ("5\n", "", line, "not a mapping", "apiVersion and kind"),
    ] {
        let mistake = added(object);
        assert_eq!(
            (mistake.path.as_str(), mistake.line),
            (path, line),
            "{object:?}: {mistake}"
        );
        assert!(
            mistake.problem.contains(problem) && mistake.fix.contains(fix),
            "{object:?}: {mistake}"
        );
    }
    let head = only(&edited(
        "apiVersion: config.keyferry.dev/v1alpha1",
        "apiVersion: config.keyferry.dev/v1",
    ));
    assert_eq!((head.path.as_str(), head.line), ("apiVersion", 1));
    assert!(head.fix.contains("config.keyferry.dev/v1alpha1"), "{head}");
}

#[test]
fn yaml_that_cannot_be_read_is_told_with_its_line_and_without_its_text() {
    let number = |text: &str| {
        text.lines()
            .position(|line| line.contains("#here"))
            .map_or(0, |line| line as u64 + 1)
    };
    for to in [
        "\tsecret: x #here",
        "  audience: x\n  audience: secret #here",
        "  audience: [secret, x #here\n  secret: x",
        "  ? [secret]\n  : x #here",
        "  audience: *secret #here",
        "  <<: {audience: secret} #here",
        "  audience: !secret x #here",
        "  audience: !!int secret #here",
        "  audience: .nan #here",
        "  audience: \"secret\\q\" #here",
        "  audience: x\n  \"audience\": secret #here",
    ] {
        let text = edited("  audience: https://prod.example.com", to);
        let mistake = only(&text);
        assert!(
            mistake.problem.starts_with("the YAML cannot be read: "),
            "{to:?}: {mistake}"
        );
        let line = number(&text);
        assert!(
            mistake.line.abs_diff(line) <= 1 && mistake.line > 0,
            "{to:?} is on line {line}: {mistake}"
        );
        assert!(
            !mistake.to_string().contains("secret #here"),
            "{to:?}: {mistake}"
        );
    }
}

#[test]
fn aliases_are_read_where_they_are_few() {
    let text = GOOD.replace(
        "serviceAccounts: [reconciler, deployer]",
        "serviceAccounts: &accounts [reconciler, deployer]",
    );
    let (head, tail) = text.split_once("      deliveries: [HTTP").unwrap();
    let tail = format!("      deliveries: [HTTP{tail}");
    let both = format!(
        "{}{tail}",
        head.replace(
            "serviceAccounts: [reconciler]",
            "serviceAccounts: *accounts"
        )
    );
    assert!(
        mistakes_of(&both)[0].problem.contains("cannot be read"),
        "an anchor ends with its document"
    );
    let text = edited(
        "[tenant-a, kube-system]\n      serviceAccounts: [reconciler, deployer]",
        "[&a tenant-a]\n      serviceAccounts: [*a]",
    );
    assert!(read(&text).is_ok());
    let text = edited(
        "[tenant-a, kube-system]\n      serviceAccounts: [reconciler, deployer]",
        "[&a T]\n      serviceAccounts: [*a]",
    );
    let found = mistakes_of(&text);
    assert_eq!(
        found[1].line,
        found[0].line + 1,
        "an alias is a mistake where it is used: {found:#?}"
    );
}

#[test]
fn scalars_mean_what_they_mean_to_kubectl() {
    // YAML 1.1, as sigs.k8s.io/yaml reads it: these are not strings.
    for scalar in [
        "yes", "Yes", "no", "NO", "on", "off", "y", "n", "true", "False", "5", "0755", "0x1F",
        "0o17", "0b11", "1_000", "1.5", "1e3",
    ] {
        let mistake = only(&edited(
            "audience: https://prod.example.com",
            &format!("audience: {scalar}"),
        ));
        assert_eq!(
            (mistake.path.as_str(), mistake.line),
            ("spec.audience", 20),
            "{scalar}: {mistake}"
        );
        assert!(mistake.fix.contains("quotes"), "{scalar}: {mistake}");
        let quoted = edited(
            "audience: https://prod.example.com",
            &format!("audience: {scalar:?}"),
        );
        assert_eq!(
            read(&quoted)
                .unwrap()
                .policy
                .targets
                .values()
                .next()
                .unwrap()
                .audience
                .as_str(),
            scalar
        );
    }
    for scalar in ["null", "~", ""] {
        let mistake = only(&edited(
            "audience: https://prod.example.com",
            &format!("audience: {scalar}"),
        ));
        assert!(mistake.problem.contains("null"), "{scalar}: {mistake}");
    }
    for scalar in [
        "2001-01-01",
        "1h",
        "v1.5",
        "1.2.3",
        "yesno",
        "nope",
        "!!str 5",
    ] {
        assert!(
            read(&edited(
                "audience: https://prod.example.com",
                &format!("audience: {scalar}")
            ))
            .is_ok(),
            "{scalar}"
        );
    }
    for (scalar, suspended) in [
        ("yes", true),
        ("on", true),
        ("off", false),
        ("False", false),
    ] {
        let policy = read(&edited(
            "suspend: true\n  allow",
            &format!("suspend: {scalar}\n  allow"),
        ))
        .unwrap()
        .policy;
        assert_eq!(
            policy.targets.values().last().unwrap().suspend,
            suspended,
            "{scalar}"
        );
    }
}
