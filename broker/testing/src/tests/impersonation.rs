use serde_json::{Value, json};

use crate::impersonation_matrix::{
    self as matrix, NAMESPACES, REQUESTORS, answers, cells, comparable, differences, recorded,
};

use super::*;

/// A target with these RBAC objects. No token of an issuer is used.
async fn target(rbac: &str, minor: u16) -> EmbeddedTarget {
    let authority = Authority::new("a CA of a test").unwrap();
    EmbeddedTarget::start(TargetOptions {
        rbac: Some(RbacPolicy::from_yaml(rbac).unwrap()),
        minor,
        ..TargetOptions::new("https://hub.example", "a", "hub:", authority.ca_pem())
    })
    .await
    .unwrap()
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        username: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..UserInfo::default()
    }
}

#[tokio::test]
async fn every_cell_is_answered_as_kube_apiserver_did() {
    assert!(cells().len() >= 500, "{}", cells().len());
    let ids: std::collections::BTreeSet<String> = cells().iter().map(|cell| cell.id()).collect();
    assert_eq!(ids.len(), cells().len(), "an id is there twice");
    for minor in [33, 36, 37] {
        let target = target(matrix::RBAC, minor).await;
        let tokens = REQUESTORS
            .iter()
            .map(|it| (it.name.to_owned(), target.add_own_user(it.user()).unwrap()))
            .collect();
        let client = https(target.ca_pem());
        let found = answers(&client, target.url(), &tokens).await.unwrap();
        let found = comparable(minor, found);
        let differences = differences(&recorded(minor), &found);
        assert!(
            differences.is_empty(),
            "1.{minor}: {} of {} cells differ, recorded first\n{}",
            differences.len(),
            found.len(),
            differences.join("\n")
        );
    }
}

#[tokio::test]
async fn the_matrix_has_every_outcome() {
    // A table of refusals alone would prove little.
    for (minor, at_least) in [(33, 60), (36, 100)] {
        let recorded = recorded(minor);
        let with = |status: u16| recorded.values().filter(|it| it.status == status).count();
        assert!(
            with(201) >= at_least,
            "1.{minor}: {} are allowed",
            with(201)
        );
        assert!(with(403) >= 100, "1.{minor}: {} are forbidden", with(403));
        assert!(with(200) >= 4, "1.{minor}: {} lists and probes", with(200));
    }
    let of_33 = recorded(33);
    let constrained = recorded(36)
        .into_iter()
        .filter(|(id, answer)| answer.status == 201 && of_33[id].status == 403)
        .count();
    assert!(constrained >= 25, "{constrained} need the constrained form");
    assert_eq!(NAMESPACES.len(), 2);
}

#[tokio::test]
async fn a_proxy_that_drops_the_headers_can_be_imitated() {
    let authority = Authority::new("a CA of a test").unwrap();
    let target = EmbeddedTarget::start(TargetOptions {
        ignores_impersonation: true,
        ..TargetOptions::new("https://hub.example", "a", "hub:", authority.ca_pem())
    })
    .await
    .unwrap();
    let review = https(target.ca_pem())
        .post(format!(
            "{}/apis/authentication.k8s.io/v1/selfsubjectreviews",
            target.url()
        ))
        .bearer_auth(target.admin_token().expose_secret())
        .header("Impersonate-User", "jane")
        .send();
    let review: Value = review.await.unwrap().json().await.unwrap();
    assert_eq!(review["status"]["userInfo"]["username"], "kubernetes-admin");
}

#[tokio::test]
async fn access_reviews_follow_the_rules_and_these_can_change() {
    let rules = |verb: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: writer, namespace: shop}}
rules:
- {{apiGroups: [''], resources: [configmaps], verbs: [{verb}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: writers, namespace: shop}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}}
subjects:
- {{apiGroup: rbac.authorization.k8s.io, kind: Group, name: writers}}
"
        )
    };
    let target = target(&rules("create"), 36).await;
    let client = https(target.ca_pem());
    let jane = user("jane", &["writers", "system:authenticated"]);
    let jane = target.add_own_user(jane).unwrap();
    let admin = target.admin_token().clone();
    let ask = async |token: &SecretString, kind: &str, spec: Value| {
        let answer = client
            .post(format!(
                "{}/apis/authorization.k8s.io/v1/{}s",
                target.url(),
                kind.to_lowercase()
            ))
            .bearer_auth(token.expose_secret())
            .json(&json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}))
            .send()
            .await
            .unwrap();
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.unwrap())
    };
    let wanted = json!({"verb": "create", "resource": "configmaps", "namespace": "shop"});
    let own = json!({"resourceAttributes": wanted});
    let (status, answer) = ask(&jane, "SelfSubjectAccessReview", own.clone()).await;
    assert_eq!(status, 201);
    assert_eq!(
        answer["status"],
        json!({
            "allowed": true,
            "reason": "RBAC: allowed by RoleBinding \"writers/shop\" of Role \"writer\" to Group \
                       \"writers\"",
        })
    );
    target.set_rbac(RbacPolicy::from_yaml(&rules("delete")).unwrap());
    let (_, answer) = ask(&jane, "SelfSubjectAccessReview", own.clone()).await;
    assert_eq!(answer["status"], json!({"allowed": false}));

    let path = json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}});
    let (_, answer) = ask(&jane, "SelfSubjectAccessReview", path.clone()).await;
    assert_eq!(answer["status"]["allowed"], true);
    let both = json!({"resourceAttributes": wanted, "nonResourceAttributes": {"path": "/"}});
    for wrong in [json!({}), both] {
        assert_eq!(ask(&jane, "SelfSubjectAccessReview", wrong).await.0, 422);
    }

    let of_writer = json!({
        "groups": ["writers"],
        "resourceAttributes": {"verb": "delete", "resource": "configmaps", "namespace": "shop"},
    });
    let (status, answer) = ask(&admin, "SubjectAccessReview", of_writer.clone()).await;
    assert_eq!((status, &answer["status"]["allowed"]), (201, &json!(true)));
    assert_eq!(ask(&jane, "SubjectAccessReview", of_writer).await.0, 403);
    assert_eq!(ask(&admin, "SubjectAccessReview", path).await.0, 422);
}

#[tokio::test]
async fn health_needs_no_token_but_its_details_need_a_right() {
    let target = target("", 36).await;
    let client = https(target.ca_pem());
    let jane = user("jane", &["system:authenticated"]);
    let jane = target.add_own_user(jane).unwrap();
    let url = |path: &str| format!("{}{path}", target.url());
    for path in ["/version", "/livez", "/readyz", "/healthz"] {
        assert_eq!(client.get(url(path)).send().await.unwrap().status(), 200);
    }
    let ping = || client.head(url("/livez/ping"));
    assert_eq!(ping().send().await.unwrap().status(), 401);
    let of_jane = ping().bearer_auth(jane.expose_secret()).send().await;
    assert_eq!(of_jane.unwrap().status(), 403);
    let admin = target.admin_token().expose_secret();
    assert_eq!(
        ping().bearer_auth(admin).send().await.unwrap().status(),
        200
    );
    // Without a token, only a user without rights may be asked for.
    let anonymous = client
        .get(url("/version"))
        .header("Impersonate-User", "jane");
    assert_eq!(anonymous.send().await.unwrap().status(), 403);
}
