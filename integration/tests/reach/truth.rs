//! What a subject really gets: it opens each door on the hub with its own credential.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use keyferry_integration::control_plane::Whom;
use keyferry_integration::rest::RestClient;
use keyferry_integration::runner::TestError;
use keyferry_integration::wait;
use keyferry_integration::world::caller_token;
use keyferry_integration::world::on_hub::{audience, secret_path};
use keyferry_reach::Subject;
use serde_json::{Value, json};

use super::stage::{ROBOT, SUBJECTS, Stage, TENANTS, subjects_that_act};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Tokens that a subject obtained, by the index of the target.
pub(super) type Tokens = BTreeSet<(usize, String)>;

/// Someone at the hub's API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    /// With tokens for any audience, as who runs its Pods.
    Account(String, String),
    /// At the hub's API alone.
    AccountAtHub(String, String),
    User(String, Option<String>),
}

pub(super) struct Truth<'a> {
    world: &'a Stage,
    /// The accounts of the hub that matter.
    accounts: Vec<(String, String)>,
}

impl<'a> Truth<'a> {
    pub(super) async fn new(world: &'a Stage) -> Result<Self, TestError> {
        let mut accounts = Vec::new();
        for namespace in TENANTS {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            let list = world.hub.admin().get(&path).await?;
            for item in list["items"].as_array().into_iter().flatten() {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                accounts.push((namespace.to_owned(), name.to_owned()));
            }
        }
        accounts.push((SUBJECTS.to_owned(), ROBOT.to_owned()));
        let actors = subjects_that_act();
        accounts.extend(actors.into_iter().map(|name| (SUBJECTS.to_owned(), name)));
        Ok(Self { world, accounts })
    }

    /// Opens every door as the subject, and as whom it becomes.
    pub(super) async fn tokens_of(&self, subject: &Subject) -> Result<Tokens, TestError> {
        let first = match subject {
            Subject::ServiceAccount(namespace, name) => {
                Identity::Account(namespace.clone(), name.clone())
            }
            Subject::User(name) => Identity::User(name.clone(), None),
            Subject::Group(name) => Identity::User("anybody".to_owned(), Some(name.clone())),
        };
        let mut tokens = Tokens::new();
        let (mut seen, mut queue) = (BTreeSet::from([first.clone()]), vec![first.clone()]);
        while let Some(identity) = queue.pop() {
            let is_first = identity == first;
            for next in self.open_doors(&identity, is_first, &mut tokens).await? {
                if seen.insert(next.clone()) {
                    queue.push(next);
                }
            }
        }
        Ok(tokens)
    }

    async fn open_doors(
        &self,
        identity: &Identity,
        is_first: bool,
        tokens: &mut Tokens,
    ) -> Result<Vec<Identity>, TestError> {
        let client = self.client_of(identity).await?;
        let mut next = Vec::new();
        if let Identity::Account(namespace, name) = identity {
            self.exchange(namespace, name, tokens).await?;
            // Its own Pod has a token for the target, as the stage made it.
            if is_first && (namespace.as_str(), name.as_str()) == ("tenant-a", "reconciler") {
                self.mint(self.world.hub.admin(), namespace, name, tokens)
                    .await;
            }
        }
        let taken = self.bind(identity, &client).await?;
        for (namespace, name) in &self.accounts {
            if self.mint(&client, namespace, name, tokens).await {
                next.push(Identity::Account(namespace.clone(), name.clone()));
            }
            if self.is_accepted_pod(&client, namespace, name).await {
                // The kubelet mints what the Pod asks for.
                self.mint(self.world.hub.admin(), namespace, name, tokens)
                    .await;
                next.push(Identity::Account(namespace.clone(), name.clone()));
            }
            let user = format!("system:serviceaccount:{namespace}:{name}");
            if impersonates(&client, &user, None).await? {
                next.push(Identity::AccountAtHub(namespace.clone(), name.clone()));
            }
        }
        for namespace in taken {
            self.give_back(identity, &namespace).await?;
        }
        if self
            .mint(&client, "tenant-a", "stranger", &mut Tokens::new())
            .await
        {
            self.write_policy(&client, tokens).await?;
            self.take_policy(&client, tokens).await?;
        }
        for (pod, account) in [("worker", "reconciler"), ("plain", "stranger")] {
            if self.may_exec(identity, pod).await? {
                match pod {
                    // It mounts a token for the first target alone.
                    "worker" => {
                        let mut mounted = Tokens::new();
                        let admin = self.world.hub.admin();
                        self.mint(admin, "tenant-a", account, &mut mounted).await;
                        tokens.extend(mounted.into_iter().filter(|(index, _)| *index == 0));
                    }
                    _ => next.push(Identity::AccountAtHub(
                        "tenant-a".to_owned(),
                        account.to_owned(),
                    )),
                }
            }
        }
        next.extend(self.read_secrets(&client, tokens).await?);
        for user in ["minter", "nobody"] {
            for group in [None, Some("minters")] {
                if impersonates(&client, user, group).await? {
                    next.push(Identity::User(user.to_owned(), group.map(str::to_owned)));
                }
            }
        }
        Ok(next)
    }

    async fn client_of(&self, identity: &Identity) -> Result<RestClient, TestError> {
        let hub = &self.world.hub;
        match identity {
            Identity::Account(namespace, name) | Identity::AccountAtHub(namespace, name) => {
                let token = hub.token_request(namespace, name, &[], 600).await?.token;
                Ok(hub.as_bearer(&token)?)
            }
            Identity::User(user, group) => {
                let group = group.as_deref().unwrap_or("no-group-of-any-binding");
                let certificate = hub.ca().client(user, group)?;
                Ok(RestClient::with_certificate(
                    &hub.url(),
                    hub.ca_pem(),
                    &certificate,
                )?)
            }
        }
    }

    /// Door 1.
    async fn exchange(
        &self,
        namespace: &str,
        name: &str,
        tokens: &mut Tokens,
    ) -> Result<(), TestError> {
        let caller = caller_token(&self.world.hub, namespace, name).await?;
        let accesses = [
            (0, "tenant-a/a"),
            (1, "tenant-b/b"),
            (2, "tenant-a/c"),
            (2, "tenant-b/c"),
        ];
        for (index, access) in accesses {
            let answer = self.world.broker.exchange(&caller, access).await?;
            if answer.status == 200 {
                tokens.insert((index, answer.token()?));
            }
        }
        Ok(())
    }

    /// Door 2: whether the client gets tokens of the account, and those for targets.
    async fn mint(
        &self,
        client: &RestClient,
        namespace: &str,
        name: &str,
        tokens: &mut Tokens,
    ) -> bool {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = |audiences: &[String]| {
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": { "audiences": audiences, "expirationSeconds": 600 } })
        };
        if client.create(&path, &request(&[])).await.is_err() {
            return false;
        }
        for index in 0..self.world.planes().len() {
            let audience = audience(self.world.planes()[index].name());
            if let Ok(answer) = client.create(&path, &request(&[audience])).await
                && let Some(token) = answer["status"]["token"].as_str()
            {
                tokens.insert((index, token.to_owned()));
            }
        }
        true
    }

    /// Door 3.
    async fn is_accepted_pod(&self, client: &RestClient, namespace: &str, account: &str) -> bool {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "tried" }, "spec": {
            "serviceAccountName": account, "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "example.com/image" }],
        } });
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        client.create(&path, &pod).await.is_ok()
    }

    /// Door 4.
    async fn may_exec(&self, identity: &Identity, pod: &str) -> Result<bool, TestError> {
        let mut spec = json!({ "resourceAttributes": { "verb": "create", "resource": "pods",
            "subresource": "exec", "namespace": "tenant-a", "name": pod } });
        match identity {
            Identity::Account(namespace, name) | Identity::AccountAtHub(namespace, name) => {
                spec["user"] = json!(format!("system:serviceaccount:{namespace}:{name}"));
                spec["groups"] = json!([
                    "system:serviceaccounts",
                    format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated"
                ]);
            }
            Identity::User(user, group) => {
                spec["user"] = json!(user);
                let groups = group
                    .iter()
                    .map(String::as_str)
                    .chain(["system:authenticated"]);
                spec["groups"] = json!(groups.collect::<Vec<_>>());
            }
        }
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
        let answer = self.world.hub.admin().create(REVIEWS, &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Door 5.
    async fn read_secrets(
        &self,
        client: &RestClient,
        tokens: &mut Tokens,
    ) -> Result<Vec<Identity>, TestError> {
        let mut secret = client
            .get(&secret_path("tenant-b", "b-kubeconfig"))
            .await
            .ok();
        if secret.is_none() {
            let list = client
                .get("/api/v1/namespaces/tenant-b/secrets")
                .await
                .unwrap_or_default();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            secret = items
                .into_iter()
                .find(|item| item["metadata"]["name"] == "b-kubeconfig");
        }
        for value in secret
            .iter()
            .flat_map(|secret| secret["data"].as_object())
            .flatten()
        {
            let bytes = STANDARD.decode(value.1.as_str().unwrap_or_default())?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Ok(kubeconfig) = serde_saphyr::from_str::<Value>(&text) else {
                continue;
            };
            if let Some(token) = kubeconfig
                .pointer("/users/0/user/token")
                .and_then(Value::as_str)
            {
                tokens.insert((1, token.to_owned()));
            }
        }
        let is_robot = client.get(&secret_path(SUBJECTS, ROBOT)).await.is_ok();
        let robot = Identity::AccountAtHub(SUBJECTS.to_owned(), ROBOT.to_owned());
        Ok(is_robot.then_some(robot).into_iter().collect())
    }

    /// Door 8: binds itself a role that mints, where it may. Returns the namespaces.
    async fn bind(
        &self,
        identity: &Identity,
        client: &RestClient,
    ) -> Result<Vec<String>, TestError> {
        let subject = match identity {
            Identity::Account(namespace, name) | Identity::AccountAtHub(namespace, name) => {
                json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
            }
            Identity::User(..) => return Ok(Vec::new()),
        };
        let mut taken = Vec::new();
        for namespace in TENANTS {
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "taken" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reach-minter" },
                "subjects": [subject],
            });
            let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
            if client.create(&path, &binding).await.is_ok() {
                self.wait_for_taken(identity, namespace, true).await?;
                taken.push(namespace.to_owned());
            }
        }
        Ok(taken)
    }

    /// Door 9: allows an account at the third target, writes an access of it, and exchanges.
    async fn write_policy(
        &self,
        client: &RestClient,
        tokens: &mut Tokens,
    ) -> Result<(), TestError> {
        let mut spec = self.world.third_spec();
        let rule = json!({ "namespaces": ["tenant-a"], "serviceAccounts": ["stranger"], "deliveries": ["HTTP"] });
        spec["allow"].as_array_mut().ok_or("no allow[]")?.push(rule);
        let target = "/apis/keyferry.dev/v1alpha1/targetclusters/target-c";
        if client
            .patch(target, &json!({ "spec": spec }))
            .await
            .is_err()
        {
            return Ok(());
        }
        let path = "/apis/keyferry.dev/v1alpha1/namespaces/tenant-a/targetaccesses";
        let access = json!({ "apiVersion": "keyferry.dev/v1alpha1", "kind": "TargetAccess", "metadata": { "name": "tried" },
            "spec": { "targetClusterRef": { "name": "target-c" }, "serviceAccountName": "stranger",
                "deliveries": [{ "name": "http", "type": "HTTP" }] } });
        let admin = self.world.hub.admin();
        if client.create(path, &access).await.is_ok() {
            let caller = caller_token(&self.world.hub, "tenant-a", "stranger").await?;
            let answer = self
                .world
                .broker
                .exchange_in_time(&caller, "tenant-a/tried")
                .await?;
            tokens.insert((2, answer.token()?));
            admin.delete(&format!("{path}/tried")).await?;
        }
        self.world
            .put_target("target-c", &self.world.third_spec())
            .await?;
        self.until_paired(false).await
    }

    /// Door 10: takes the binding away that keeps accounts from the audiences of targets, and mints.
    async fn take_policy(&self, client: &RestClient, tokens: &mut Tokens) -> Result<(), TestError> {
        let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/keyferry-pairing";
        let admin = self.world.hub.admin();
        let binding = admin.get(path).await?;
        if client.delete(path).await.is_err() {
            return Ok(());
        }
        self.until_paired(true).await?;
        self.mint(client, "tenant-a", "stranger", tokens).await;
        let binding = json!({ "apiVersion": binding["apiVersion"], "kind": binding["kind"],
            "metadata": { "name": "keyferry-pairing" }, "spec": binding["spec"] });
        admin.apply(path, &binding).await?;
        self.until_paired(false).await
    }

    /// Waits until the hub issues, or refuses, tokens of `stranger` for the third target.
    async fn until_paired(&self, is_issued: bool) -> Result<(), TestError> {
        let limit = Duration::from_secs(60);
        wait::until("the hub follows the act", limit, || async {
            let mut tokens = Tokens::new();
            let admin = self.world.hub.admin();
            self.mint(admin, "tenant-a", "stranger", &mut tokens).await;
            Ok(tokens.iter().any(|(target, _)| *target == 2) == is_issued)
        })
        .await
    }

    async fn give_back(&self, identity: &Identity, namespace: &str) -> Result<(), TestError> {
        let path = format!("{RBAC}/namespaces/{namespace}/rolebindings/taken");
        self.world.hub.admin().delete(&path).await?;
        self.wait_for_taken(identity, namespace, false).await
    }

    async fn wait_for_taken(
        &self,
        identity: &Identity,
        namespace: &str,
        counts: bool,
    ) -> Result<(), TestError> {
        let (Identity::Account(home, name) | Identity::AccountAtHub(home, name)) = identity else {
            return Ok(());
        };
        let user = format!("system:serviceaccount:{home}:{name}");
        let rule = json!({ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] });
        let hub = &self.world.hub;
        if counts {
            hub.until_it_counts(Whom::User(&user), namespace, &rule)
                .await?;
        } else {
            // Some may mint anyway.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        Ok(())
    }
}

/// Door 7: whether a request as another user passes.
async fn impersonates(
    client: &RestClient,
    user: &str,
    group: Option<&str>,
) -> Result<bool, TestError> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let mut request = client
        .request(
            Method::POST,
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        )
        .header("Impersonate-User", user)
        .json(&review);
    if let Some(group) = group {
        request = request.header("Impersonate-Group", group);
    }
    Ok(request.send().await?.status().is_success())
}

/// What a token may do at its target, by a review that the token itself asks for.
pub(super) struct TargetTruth<'a> {
    world: &'a Stage,
    reviews: BTreeMap<(usize, String, usize), bool>,
}

impl<'a> TargetTruth<'a> {
    pub(super) fn new(world: &'a Stage) -> Self {
        Self {
            world,
            reviews: BTreeMap::new(),
        }
    }

    /// Whether the token may send the request, as itself or as the account that it may act as.
    pub(super) async fn allows(
        &mut self,
        target: usize,
        token: &str,
        number: usize,
        attributes: &Value,
    ) -> Result<bool, TestError> {
        let subject = keyferry_integration::world::claims(token)?["sub"].to_string();
        let key = (target, subject, number);
        if let Some(known) = self.reviews.get(&key) {
            return Ok(*known);
        }
        let plane = self.world.planes()[target];
        let client = plane.as_bearer(token)?;
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes } });
        let mut allowed = false;
        for user in [None, Some("system:serviceaccount:infra:agent")] {
            let mut request = client
                .request(
                    Method::POST,
                    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                )
                .json(&review);
            if let Some(user) = user {
                request = request.header("Impersonate-User", user);
            }
            let answer = request.send().await?;
            if answer.status().is_success() {
                allowed |= answer.json::<Value>().await?["status"]["allowed"] == true;
            }
        }
        self.reviews.insert(key, allowed);
        Ok(allowed)
    }
}
