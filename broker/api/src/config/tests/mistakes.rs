//! One case per rule: one edit of the good file makes one mistake, at its path, on its line, with
//! part of the problem and of the fix.

mod access;
mod allow;
mod server;
mod target;

use super::{GOOD, edited, mistakes_of};

/// Marks the end of the line with the mistake.
const MISTAKE_MARK: &str = "#here";

struct Case {
    from: &'static str,
    to: String,
    path: &'static str,
    problem: &'static str,
    fix: &'static str,
}

fn case(
    from: &'static str,
    to: impl Into<String>,
    path: &'static str,
    problem: &'static str,
    fix: &'static str,
) -> Case {
    Case {
        from,
        to: to.into(),
        path,
        problem,
        fix,
    }
}

fn check(cases: Vec<Case>) {
    let mut failures = Vec::new();
    for Case {
        from,
        to,
        path,
        problem,
        fix,
    } in cases
    {
        let text = edited(from, &to);
        let found = mistakes_of(&text);
        let line = text
            .lines()
            .position(|line| line.ends_with(MISTAKE_MARK))
            .map(|line| line as u64 + 1);
        let right = matches!(found.as_slice(), [mistake] if mistake.path == path
            && Some(mistake.line) == line
            && mistake.problem.contains(problem)
            && mistake.fix.contains(fix)
            && !mistake.object.is_empty());
        if !right {
            failures.push(format!(
                "{to:?}\n  should say {path} on {line:?}, {problem:?}, \
                {fix:?}\n  but says {found:#?}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn of_a_missing_part() {
    // A missing part is reported once, not once for each field in it.
    for (from, to, path) in [
        ("metadata:\n  name: prod\nspec:\n", "spec:\n", "metadata"),
        (
            "metadata:\n  name: prod\nspec:\n",
            "metadata:\nspec:\n",
            "metadata",
        ),
        (
            "metadata:\n  name: prod\nspec:\n",
            "metadata: {}\nspec:\n",
            "metadata.name",
        ),
        (
            "discovery:\n  tls:\n    certFile: /tls/tls.crt\n    keyFile: /tls/tls.key\n",
            "",
            "discovery.tls",
        ),
    ] {
        let found = mistakes_of(&edited(from, to));
        let paths: Vec<&str> = found.iter().map(|mistake| mistake.path.as_str()).collect();
        assert_eq!(paths, [path], "{to:?}: {found:#?}");
        assert!(found[0].line > 0);
    }
}

#[test]
fn are_all_told_at_once() {
    let mut text = GOOD.to_owned();
    let edits = [
        ("hubName: hub", "hubName: HUB", "hubName"),
        ("keyFile: /tls/api.key", "keyFile: 5", "api.tls.keyFile"),
        (
            "address: https://prod.example.com:6443",
            "address: http://prod.example.com:6443",
            "spec.address",
        ),
        (
            "audience: https://prod.example.com",
            "audience: keyferry.dev",
            "spec.audience",
        ),
        (
            "[tenant-a, kube-system]",
            "[A]",
            "spec.allow[0].namespaces[0]",
        ),
        (
            "[reconciler, deployer]",
            "['*', b, b]",
            "spec.allow[0].serviceAccounts[0]",
        ),
        ("", "", "spec.allow[0].serviceAccounts[2]"),
        (
            "  proxyURL: socks5://",
            "  proxyUrl: socks5://",
            "spec.proxyUrl",
        ),
        (
            "audience: staging",
            "audience: keyferry.dev",
            "spec.audience",
        ),
        ("", "", "spec.audience"),
        ("  issuer: Hub", "  issuer: 5", "spec.issuer"),
        ("default: 30m", "default: 1m", "spec.tokenLifetime.default"),
        ("max: 2h", "max: 48h", "spec.tokenLifetime.max"),
        (
            "suspend: true\n  allow",
            "suspend: maybe\n  allow",
            "spec.suspend",
        ),
        (
            "operator: NotIn",
            "operator: Not",
            "spec.allow[0].namespaceSelector.matchExpressions[0].operator",
        ),
        (
            "[HTTP, ArgoCDSecret]",
            "[HTTP, HTTP]",
            "spec.allow[0].deliveries[1]",
        ),
        (
            "  name: staging\n  namespace: tenant-a",
            "  name: prod\n  namespace: tenant-a",
            "metadata.name",
        ),
        ("callers: [notifier]", "callers: [a/b]", "spec.callers[0]"),
        ("probe: Report", "probe: Require", "spec.probe"),
    ];
    let mut expected = Vec::new();
    for (from, to, path) in edits {
        if !from.is_empty() {
            assert_eq!(text.matches(from).count(), 1, "{from:?}");
            text = text.replace(from, to);
        }
        expected.push(path);
    }
    text += "---\nkind: Secret\n";
    expected.push("kind");
    let found = mistakes_of(&text);
    let mut paths: Vec<&str> = found.iter().map(|mistake| mistake.path.as_str()).collect();
    paths.sort_unstable();
    expected.sort_unstable();
    assert_eq!(paths, expected, "{found:#?}");
    assert!(found.iter().all(|mistake| mistake.line > 0), "{found:#?}");
}

#[test]
fn stand_in_the_order_of_place_path_problem_fix() {
    let found = mistakes_of(&edited("issuer: Hub", "issuer: X"));
    assert_eq!(
        found[0].to_string(),
        "line 38: TargetCluster/staging: spec.issuer: \"X\" is not an issuer type; use Hub or Keyferry"
    );
    let found = mistakes_of(&edited("probe: Report", "probe: X"));
    assert!(
        found[0]
            .to_string()
            .starts_with("line 79: TargetAccess/tenant-a/staging: spec.probe: "),
        "{}",
        found[0]
    );
}
