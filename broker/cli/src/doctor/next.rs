//! Suggests what to do after doctor's report: the command to run, and the missing RBAC.

use std::path::Path;

use keyferry_client::doctor::diagnosis::{Hop, Mode, Report, ReportedHop, Status, Verdict};
use keyferry_client::doctor::resource_attributes::ResourceAttributes;
use keyferry_kube_authn::Code;
use keyferry_kube_authn::rights::{binding_subject, role_for};
use serde_json::json;

use crate::role_manifest::{documents, with_bindings};

/// Returns commands that would find out more; none if the report is complete.
pub(super) fn commands(report: &Report, auth_config: Option<&Path>) -> Vec<String> {
    let program = std::env::args_os().next();
    let program = program
        .as_deref()
        .map(Path::new)
        .and_then(Path::file_name)
        .and_then(|name| name.to_str());
    let program = if program == Some("kubectl-keyferry") {
        "kubectl keyferry"
    } else {
        "keyferry"
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    after(report, auth_config, program, &arguments)
}

fn after(
    report: &Report,
    auth_config: Option<&Path>,
    program: &str,
    arguments: &[String],
) -> Vec<String> {
    let same = [program.to_owned()]
        .into_iter()
        .chain(arguments.iter().map(|argument| quoted(argument)))
        .collect::<Vec<_>>()
        .join(" ");
    let at = |hop: Hop| report.hops.iter().find(|found| found.hop == hop);
    let open = |hop: Hop| at(hop).is_some_and(|found| found.status == Status::Undetermined);
    let because = |hop: &ReportedHop, code: Code| hop.reason == Some(code.into());
    if let Some(broken) = &report.broken {
        if because(broken, Code::TargetNotListed) {
            return vec![format!("{same} --allow-unlisted-target")];
        }
        // Lint names the line of the file, and its other problems.
        return match auth_config {
            Some(file)
                if matches!(
                    broken.hop,
                    Hop::Configuration | Hop::Discovery | Hop::Keys | Hop::Authentication
                ) =>
            {
                vec![format!(
                    "{program} lint --network {}",
                    quoted(&file.display().to_string())
                )]
            }
            _ => Vec::new(),
        };
    }
    if report.verdict != Verdict::Undetermined {
        return Vec::new();
    }
    if open(Hop::Token) {
        return match report.start.strip_prefix("targetcluster/") {
            Some(_) => vec![
                format!("kubectl get targetaccesses --all-namespaces"),
                format!("{program} doctor targetaccess/NAME --namespace NAMESPACE --config FILE"),
            ],
            None => vec![format!("{same} --target-token-file FILE")],
        };
    }
    if at(Hop::Authentication).is_some_and(|found| because(found, Code::TokenRefused)) {
        let mut next = Vec::new();
        if !report.modes.contains(&Mode::TargetKubeconfig) {
            next.push(format!("{same} --target-kubeconfig FILE"));
        }
        if !report.modes.contains(&Mode::Configuration) {
            next.push(format!("{same} --auth-config FILE"));
        }
        return next;
    }
    if open(Hop::Discovery) || open(Hop::Keys) {
        return vec![format!("{same} --discovery-url URL --discovery-ca FILE")];
    }
    if open(Hop::Connection) {
        return vec![format!(
            "{same} --target-address URL --target-certificate-authority FILE"
        )];
    }
    Vec::new()
}

/// Quotes a word for a shell's command line.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", super::ui::plain(text).replace('\'', "'\\''"))
    }
}

/// Renders YAML that grants a user the needed rights: a role with its binding, or a binding to an
/// existing role.
pub(super) fn rbac(user: &str, needs: &[ResourceAttributes], namespace: Option<&str>) -> String {
    if needs.is_empty() {
        // Only the target admin knows the right role; view does the least harm.
        return documents([json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "keyferry-user", "namespace": namespace.unwrap_or("default") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" }, "subjects": [binding_subject(user)],
        })]);
    }
    let resources: Vec<String> = needs
        .iter()
        .map(ResourceAttributes::resource_path)
        .collect();
    let rights: Vec<(&str, &str, &str)> = needs
        .iter()
        .zip(&resources)
        .map(|(need, resource)| (&*need.group, &**resource, &*need.verb))
        .collect();
    with_bindings(&[role_for(namespace, &rights)], user)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use insta::assert_snapshot;
    use keyferry_client::doctor::diagnosis::{
        Asked, Evidence, Identity, Target, TokenEvidence, examine,
    };
    use keyferry_kube_authn::fetched::{Fetched, HttpResponse};

    use super::*;

    fn report(modes: Vec<Mode>, edit: impl FnOnce(&mut Evidence)) -> Report {
        let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2h1YiIsInN1YiI6InMiLCJhdWQiOlsidCJdLCJleHAiOjQxMDI0NDQ4MDB9.eA";
        let mut evidence = Evidence {
            start: "targetaccess/a".to_owned(),
            token_evidence: TokenEvidence::Token(token.into()),
            target: Target {
                connection: Fetched::Response(HttpResponse {
                    status: 200,
                    body: Vec::new(),
                }),
                identity: Identity::Refused,
                rights: Asked::NotAsked,
                ..Target::default()
            },
            ..Evidence::default()
        };
        edit(&mut evidence);
        Report::of(&evidence.start.clone(), modes, &examine(&evidence))
    }

    fn next(report: &Report, arguments: &[&str]) -> Vec<String> {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect();
        after(report, None, "keyferry", &arguments)
    }

    #[test]
    fn a_refusal_ends_with_the_command_that_finds_its_cause() {
        let refused = report(vec![Mode::Network], |_| {});
        let typed = ["doctor", "tga/a", "-n", "tenant a"];
        assert_eq!(
            next(&refused, &typed),
            [
                "keyferry doctor tga/a -n 'tenant a' --target-kubeconfig FILE",
                "keyferry doctor tga/a -n 'tenant a' --auth-config FILE"
            ]
        );
        let all = report(
            vec![Mode::Network, Mode::Configuration, Mode::TargetKubeconfig],
            |_| {},
        );
        assert!(next(&all, &typed).is_empty());
        assert!(
            next(
                &report(vec![], |e| e.token_evidence = TokenEvidence::None),
                &typed
            )[0]
            .ends_with("--target-token-file FILE")
        );
    }

    #[test]
    fn what_is_missing_is_printed_as_it_is_to_be_bound() {
        let user = "hub:system:serviceaccount:a:b";
        let yaml = rbac(user, &[], Some("apps"));
        assert_snapshot!("a-role-to-choose", yaml);
        let need = ResourceAttributes {
            verb: "patch".to_owned(),
            resource: "deployments".to_owned(),
            group: "apps".to_owned(),
            subresource: "scale".to_owned(),
            ..ResourceAttributes::default()
        };
        let yaml = rbac(user, &[need], None);
        assert_snapshot!("a-role-that-is-missing", yaml);
    }
}
