//! keyferry-pairing: restricts the audiences of TokenRequests.

use std::sync::Arc;

use keyferry_core::admission_policy;
use keyferry_core::pairing::UNUSABLE_AUDIENCE;
use keyferry_integration::runner::TestResult;
use serde_json::json;

use super::people;
use super::stage::{
    ADMISSION, AUDIENCE, KEYFERRY, PAIRING, SECOND, Stage, mint, must_be_denied, must_pass,
    token_request,
};

const POLICY: &str = "keyferry-pairing";

pub(super) async fn table(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let who = [
            ("the tenant", people::tenant(hub, "tenant-a").await?),
            ("cluster-admin", people::cluster_admin(hub).await?),
            ("system:masters", hub.admin().clone()),
            ("Keyferry", people::keyferry(hub).await?),
        ];
        for (name, client) in &who {
            let what = format!("{name} on {}", hub.name());
            must_pass(
                &what,
                mint(client, "tenant-a", "reconciler", &[AUDIENCE]).await,
            )?;
            must_pass(
                &what,
                mint(client, "tenant-a", "reconciler", &[SECOND]).await,
            )?;
            must_pass(
                &format!("{what}, an audience that is not Keyferry's"),
                mint(client, "tenant-a", "other", &["vault"]).await,
            )?;
            must_be_denied(
                &what,
                mint(client, "tenant-a", "other", &[AUDIENCE]).await,
                POLICY,
            )?;
        }
        let root = &who[1].1;
        // An account of the same name in another namespace.
        must_be_denied(
            "another namespace",
            mint(root, "tenant-b", "reconciler", &[AUDIENCE]).await,
            POLICY,
        )?;
        must_be_denied(
            "kube-system",
            mint(root, "kube-system", "reconciler", &[AUDIENCE]).await,
            POLICY,
        )?;
        // Not in a request with several audiences, whatever the others are.
        for mix in [
            &[AUDIENCE, "vault"] as &[&str],
            &["vault", AUDIENCE],
            &[AUDIENCE, SECOND],
            &[AUDIENCE, AUDIENCE],
            &[AUDIENCE, ""],
        ] {
            must_be_denied(
                &format!("{mix:?}"),
                mint(root, "tenant-a", "reconciler", mix).await,
                POLICY,
            )?;
        }
        let other = mint(root, "tenant-a", "other", &[AUDIENCE]).await;
        let said = other
            .err()
            .ok_or("a token for a pair that is not listed")?
            .to_string();
        assert!(
            said.contains(&format!(
                "no TargetAccess gives tenant-a/other the audience {AUDIENCE}"
            )),
            "{said}"
        );
        // The audiences that the hub's own clients request.
        let own = must_pass("no audience", mint(root, "tenant-a", "other", &[]).await)?;
        assert_eq!(
            own["spec"]["audiences"],
            json!([format!("https://{}.keyferry.test", hub.name())])
        );
        must_pass(
            "two audiences of others",
            mint(root, "tenant-a", "other", &["vault", "sts"]).await,
        )?;
        // Keyferry uses this refusal to detect that the policy is active.
        let keyferry = &who[3].1;
        must_be_denied(
            "nobody's",
            mint(
                keyferry,
                "keyferry-system",
                "keyferry-canary",
                &[UNUSABLE_AUDIENCE],
            )
            .await,
            POLICY,
        )?;
        let paths = [
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ]
        .map(|kind| format!("{ADMISSION}/{kind}/{POLICY}"));
        let (policy, binding) = (
            keyferry.get(&paths[0]).await?,
            keyferry.get(&paths[1]).await?,
        );
        admission_policy::PAIRING_POLICY.compare_with_shipped(
            &policy,
            &binding,
            &admission_policy::HubSite::of_shipped_manifests(),
        )?;
        must_pass(
            "the canary",
            mint(root, "keyferry-system", "keyferry-canary", &[AUDIENCE]).await,
        )?;
    }
    Ok(())
}

pub(super) async fn ways_round(stage: Arc<Stage>) -> TestResult {
    for hub in &stage.hubs {
        let root = people::cluster_admin(hub).await?;
        let path = "/api/v1/namespaces/tenant-a/serviceaccounts/other/token";
        must_be_denied(
            "a dry run",
            root.create(&format!("{path}?dryRun=All"), &token_request(&[AUDIENCE]))
                .await,
            POLICY,
        )?;
        // Another spelling is another audience. The target, too, compares bytes.
        for other in [
            AUDIENCE.to_uppercase(),
            format!("{AUDIENCE}/"),
            format!(" {AUDIENCE}"),
        ] {
            let minted = must_pass(
                "another spelling",
                mint(&root, "tenant-a", "other", &[&other]).await,
            )?;
            assert_eq!(minted["spec"]["audiences"], json!([other]));
        }
        // The URL names the ServiceAccount. The apiserver refuses a body that names another one.
        let mut body = token_request(&[AUDIENCE]);
        body["metadata"] = json!({ "name": "reconciler", "namespace": "tenant-a" });
        let answer = root.create(path, &body).await;
        assert!(
            answer.is_err(),
            "a body that names another account was taken on {}",
            hub.name()
        );
        for name in [
            "tenant-a%2Freconciler",
            "..%2F..%2Ftenant-a%2Fserviceaccounts%2Freconciler",
            "reconciler%2F",
        ] {
            for namespace in ["tenant-b", "tenant-a%2Freconciler"] {
                let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
                assert!(
                    root.create(&path, &token_request(&[AUDIENCE]))
                        .await
                        .is_err(),
                    "{path} gave a token on {}",
                    hub.name()
                );
            }
        }
        // A request built to exceed the cost limit of an expression is refused, not allowed.
        let mut many: Vec<String> = (0..20_000).map(|number| format!("a{number}")).collect();
        many.push(AUDIENCE.to_owned());
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let answer = mint(&root, "tenant-a", "other", &many).await;
        // A busy apiserver takes more than its request timeout for so many, and answers 504.
        let timed_out = matches!(&answer, Err(error) if error.status() == Some(504));
        if !timed_out {
            must_be_denied("twenty thousand audiences", answer, POLICY)?;
        }
        // Only Keyferry may write the object.
        let engineer = people::tenant(hub, "tenant-b").await?;
        let theirs = json!({ "pairs": { AUDIENCE: ["tenant-b/reconciler"] } });
        for answer in [
            engineer.patch(PAIRING, &theirs).await,
            engineer.delete(PAIRING).await,
            engineer.get(PAIRING).await,
        ] {
            assert_eq!(
                answer.err().and_then(|error| error.status()),
                Some(403),
                "a tenant reached the pairing on {}",
                hub.name()
            );
        }
        let second = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "AudiencePairing", "metadata": { "name": "second" }, "pairs": {} });
        let keyferry = people::keyferry(hub).await?;
        let answer = keyferry
            .create(&format!("{KEYFERRY}/audiencepairings"), &second)
            .await;
        assert!(
            answer.is_err_and(|error| error.to_string().contains("its name is keyferry")),
            "a second pairing on {}",
            hub.name()
        );
        let odd = json!({ "pairs": { AUDIENCE: ["tenant-a/reconciler/x"] } });
        assert!(
            hub.admin()
                .patch(&format!("{PAIRING}?dryRun=All"), &odd)
                .await
                .is_err(),
            "a pair with two slashes on {}",
            hub.name()
        );
    }
    Ok(())
}
