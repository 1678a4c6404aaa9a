//! The inputs that the hub's objects and their statuses give.

use insta::assert_snapshot;
use keyferry_api::name::Namespace;
use keyferry_client::ClientError;
use keyferry_hub::ports::HubError;

use super::*;

/// A hub with one target whose callers are selected by labels.
fn known_hub(issuer: &str) -> KnownHub {
    let target = format!(
        r#"{{"apiVersion":"keyferry.dev/v1alpha1","kind":"TargetCluster",
        "metadata":{{"name":"prod","uid":"u","resourceVersion":"1","generation":1,
        "creationTimestamp":"2026-01-01T00:00:00Z"}},
        "spec":{{"address":"https://prod.example.com","audience":"https://prod","issuer":"{issuer}",
        "allow":[{{"serviceAccounts":["reconciler"],
        "namespaceSelector":{{"matchLabels":{{"kubernetes.io/metadata.name":"tenant-a"}}}}}}]}}}}"#
    );
    let mut configuration =
        of_hub_objects("hub", "https://keys.example.com", "keyferry-system").unwrap();
    let object = serde_json::from_str(&target).unwrap();
    let mut objects = keyferry_api::config::StoredObjects::default();
    objects
        .targets
        .extend(keyferry_api::config::StoredTarget::read(
            &object,
            &configuration.server,
        ));
    configuration.policy = objects
        .assemble(&configuration.server.cluster_resource_namespace)
        .policy;
    configuration.server.hub_issuer =
        Some(keyferry_api::issuer::Issuer::new("https://hub.example.com").unwrap());
    let labels = |name: &str| {
        let labels = [("kubernetes.io/metadata.name".to_owned(), name.to_owned())];
        (Namespace::new(name).unwrap(), labels.into())
    };
    KnownHub {
        configuration,
        status: Some(TargetClusterStatus {
            discovery_certificate_authority: Some(std::fs::read_to_string(ca().path()).unwrap()),
            ..TargetClusterStatus::default()
        }),
        unread_roles: None,
        namespaces: Ok([
            labels("tenant-a"),
            labels("tenant-b"),
            labels("kube-system"),
        ]
        .into()),
    }
}

/// A printed file without the lines of its CA, which is another one in each run.
fn without_ca(text: &str) -> String {
    let (before, rest) = text.split_once("-----BEGIN CERTIFICATE-----").unwrap();
    let (_, after) = rest.split_once("-----END CERTIFICATE-----").unwrap();
    format!("{before}CERTIFICATE{after}")
}

#[test]
fn the_hubs_object_and_its_status_say_everything() {
    let args = Line::try_parse_from(["trust", "prod"]).unwrap().args;
    let text = print(&args, Some(&known_hub("Hub"))).unwrap().text;
    assert!(user(&text, Minor::V1_37, &token()).is_some());
    assert!(!text.contains("tenant-b"), "{text}");
    assert_snapshot!("the-hubs-object", without_ca(&text));
}

#[test]
fn a_managed_issuer_is_the_one_that_the_target_trusts() {
    let args = Line::try_parse_from(["trust", "prod"]).unwrap().args;
    let text = print(&args, Some(&known_hub("Keyferry"))).unwrap().text;
    assert_snapshot!("a-managed-issuer", without_ca(&text));
}

#[test]
fn without_the_right_to_list_namespaces_the_rule_is_left_out_and_named() {
    let args = Line::try_parse_from(["trust", "prod"]).unwrap().args;
    let known = KnownHub {
        namespaces: Err(UnknownLabels::Hub(ClientError::HubCall {
            doing: "listing the namespaces of the hub",
            error: HubError::Forbidden("no right".into()),
        })),
        ..known_hub("Hub")
    };
    let problem = print(&args, Some(&known)).unwrap_err().to_string();
    assert_snapshot!("without-the-namespaces", problem);
    let args = Line::try_parse_from(["trust", "prod", "--allow=tenant-a/reconciler"])
        .unwrap()
        .args;
    assert!(print(&args, Some(&known)).is_ok());
}

#[test]
fn a_status_that_cannot_be_used_does_not_widen_the_trust_silently() {
    let args = |line: &[&str]| {
        Line::try_parse_from([&["trust", "prod"], line].concat())
            .unwrap()
            .args
    };
    let broken = KnownHub {
        status: Some(TargetClusterStatus {
            discovery_certificate_authority: Some("no PEM".to_owned()),
            ..TargetClusterStatus::default()
        }),
        ..known_hub("Hub")
    };
    let problem = print(&args(&[]), Some(&broken)).unwrap_err();
    assert_eq!(
        problem.fix,
        Some("give the CA certificates by --discovery-ca FILE".into())
    );
    let none = KnownHub {
        status: Some(TargetClusterStatus::default()),
        ..known_hub("Hub")
    };
    let printed = print(&args(&[]), Some(&none)).unwrap();
    assert_snapshot!("a-status-without-a-ca", with_notes(&printed));
    let elsewhere = print(
        &args(&["--discovery-url=https://other/d"]),
        Some(&known_hub("Hub")),
    );
    assert!(!elsewhere.unwrap().text.contains("BEGIN CERTIFICATE"));
}

#[test]
fn keyferrys_own_namespace_is_left_out() {
    let mut known = known_hub("Hub");
    known.configuration.policy.own_namespace = Some(Namespace::new("tenant-a").unwrap());
    let args = Line::try_parse_from(["trust", "prod"]).unwrap().args;
    let problem = print(&args, Some(&known)).unwrap_err().to_string();
    assert_snapshot!("keyferrys-own-namespace", problem);
}
