//! One process's calls of the hub: each goes through its link, and then to the state that all
//! share.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::audience::Audience;
use keyferry_api::config::ReducedObject;
use keyferry_api::name::ObjectName;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity};
use keyferry_core::audit::AuditRecord;
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_core::client_certificate::CountedRequest;
use keyferry_core::delivery::{FluxObject, ObjectBody, ReadObject};
use keyferry_hub::ports::{
    EndpointAnswer, Hub, HubError, HubFacts, HubObjects, IssuerDocuments, IssuerKeyStore,
    SecretData, SecretStore, StoredKeys, StoredObject, StoredSecret, UpstreamDocuments,
};
use keyferry_keys::bound_token::MintAnswer;
use keyferry_platform::audit_sink::{AuditSink, Recording};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::hub_keys::{HUB_KEYS, ISSUER, TokenSpec};
use crate::mistake::Mistake;
use crate::oracle::{self, IssuedToken};
use crate::schedule::BROKEN_SEAL;
use crate::world::{Link, World};

/// The Secret of the key journal.
const JOURNAL: &str = "keyferry-keys";
/// The collection of the Lease.
const LEASES: &str = "/leases";

/// One process's side of the hub.
#[derive(Clone)]
pub(crate) struct HubPort(pub(crate) Arc<Link>);

impl World {
    /// Signs a token of a ServiceAccount, if it has this UID.
    fn sign_token(
        &self,
        account: &ServiceAccount,
        uid: &str,
        audience: &str,
        lifetime: Duration,
        token_id: &str,
    ) -> Result<String, HubError> {
        let hub = self.hub.lock();
        let (namespace, name) = (account.namespace.as_str(), account.name.as_str());
        let key = (namespace.to_owned(), name.to_owned());
        let present = hub.accounts.get(&key);
        let present = present.ok_or_else(|| HubError::NotFound("no account".to_owned()))?;
        if present != uid {
            return Err(HubError::Conflict("another uid".to_owned()));
        }
        // A lying hub signs for another audience, for longer, or for another account.
        let lie = if self.lies() {
            token_id.len() + token_id.as_bytes()[0] as usize
        } else {
            9
        };
        let spec = TokenSpec {
            namespace,
            name: if lie % 4 == 0 { "another" } else { name },
            uid,
            audience: if lie % 4 == 2 {
                "https://kubernetes.default.svc"
            } else {
                audience
            },
            token_id,
            issued_at: self.wall(),
            lifetime: if lie % 4 == 3 { lifetime * 2 } else { lifetime },
        };
        Ok(HUB_KEYS[hub.signing].sign(&spec))
    }

    /// Signs a caller's own token, as the kubelet requests it.
    pub(crate) fn caller_token(&self, namespace: &str, name: &str, token_id: &str) -> String {
        let mut hub = self.hub.lock();
        let uid = hub.accounts[&(namespace.to_owned(), name.to_owned())].clone();
        let token = HUB_KEYS[hub.signing].sign(&TokenSpec {
            namespace,
            name,
            uid: &uid,
            audience: "keyferry.dev",
            token_id,
            issued_at: self.wall(),
            lifetime: Duration::from_secs(3600),
        });
        let owner = (namespace.to_owned(), name.to_owned(), uid);
        hub.caller_tokens.insert(token.clone(), owner);
        token
    }

    /// The account of a caller's token.
    fn owner(&self, token: &str) -> String {
        let hub = self.hub.lock();
        let owner = hub.caller_tokens.get(token);
        owner.map_or_else(String::new, |(namespace, name, _)| {
            format!("{namespace}/{name}")
        })
    }

    fn review(&self, token: &str) -> Option<TokenReviewAnswer> {
        let hub = self.hub.lock();
        let (namespace, name, uid) = hub.caller_tokens.get(token)?;
        let present = hub.accounts.get(&(namespace.clone(), name.clone()))?;
        (present == uid).then(|| TokenReviewAnswer {
            authenticated: true,
            audiences: vec!["keyferry.dev".to_owned()],
            user: ReviewedUser {
                username: format!("system:serviceaccount:{namespace}:{name}"),
                uid: uid.clone(),
                groups: vec!["system:serviceaccounts".to_owned()],
                extra: std::collections::BTreeMap::new(),
            },
        })
    }
}

fn no_review() -> TokenReviewAnswer {
    TokenReviewAnswer {
        authenticated: false,
        audiences: Vec::new(),
        user: ReviewedUser {
            username: String::new(),
            uid: String::new(),
            groups: Vec::new(),
            extra: std::collections::BTreeMap::new(),
        },
    }
}

impl Hub for HubPort {
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        lifetime: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        let what = format!("mint {} {audience}", identity.account);
        Box::pin(async move {
            let world = &self.0.world;
            let token_id = format!("{:016x}", self.0.draw(&format!("jti {what}")));
            let work = async {
                let uid = identity.uid.as_str();
                let audience = audience.as_str();
                let token =
                    world.sign_token(&identity.account, uid, audience, lifetime, &token_id)?;
                Ok(MintAnswer {
                    token: SecretString::from(token),
                    expires_at: world.wall().saturating_add(lifetime).unwrap(),
                })
            };
            self.0.call(&what, work).await
        })
    }

    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
        audience: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        Box::pin(async move {
            let work = async {
                let answer = self.0.world.review(token.expose_secret());
                Ok(answer
                    .filter(|_| audience.is_some())
                    .unwrap_or_else(no_review))
            };
            self.0
                .call(
                    &format!("review {}", self.0.world.owner(token.expose_secret())),
                    work,
                )
                .await
        })
    }

    fn access_review<'a>(
        &'a self,
        user: &'a ReviewedUser,
        _: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        let what = format!("access review {}", user.username);
        Box::pin(async move { self.0.call(&what, async { Ok(true) }).await })
    }

    fn path_review<'a>(
        &'a self,
        _: &'a ReviewedUser,
        _: &'static str,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async { Ok(false) })
    }
}

impl IssuerDocuments for HubPort {
    fn fetch(&self) -> BoxFuture<'_, Vec<EndpointAnswer>> {
        Box::pin(async move {
            let work = async {
                let hub = self.0.world.hub.lock();
                let keys: Vec<&Value> =
                    hub.listed.iter().map(|key| &HUB_KEYS[*key].entry).collect();
                let metadata = json!({
                    "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
                    "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["ES256"],
                });
                Ok(UpstreamDocuments {
                    metadata: metadata.to_string().into_bytes(),
                    jwks: json!({ "keys": keys }).to_string().into_bytes(),
                })
            };
            vec![EndpointAnswer {
                endpoint: "hub".to_owned(),
                documents: self.0.call("documents", work).await,
            }]
        })
    }
}

impl HubFacts for HubPort {
    fn api_audiences(&self) -> BoxFuture<'_, Result<Vec<String>, HubError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn own_username(&self) -> BoxFuture<'_, Result<String, HubError>> {
        Box::pin(async { Ok("system:serviceaccount:keyferry-system:keyferry".to_owned()) })
    }
}

impl SecretStore for HubPort {
    fn get<'a>(
        &'a self,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredSecret>, HubError>> {
        Box::pin(async move {
            let world = &self.0.world;
            let is_journal = name.as_str() == JOURNAL;
            let work = async {
                let mut read = world.secrets.get(name).await?;
                if is_journal
                    && self.0.process > 0
                    && world.has_mistake(Mistake::JournalRolledBack)
                    && let Some(first) = world.oracle.lock().first_journal.clone()
                    && let Some(read) = &mut read
                {
                    read.data = first;
                }
                Ok(read)
            };
            let asked = world.now();
            let outcome = self.0.call(&format!("get {name}"), work).await;
            // Without its seal, it tells a replica nothing.
            let is_believed = |read: &Option<StoredSecret>| {
                read.as_ref().is_none_or(|read| {
                    read.data
                        .get("seal")
                        .is_none_or(|seal| **seal != *BROKEN_SEAL)
                })
            };
            if is_journal && outcome.as_ref().is_ok_and(is_believed) {
                world
                    .oracle
                    .lock()
                    .note_journal_read(self.0.replica, asked, world.now());
            }
            outcome
        })
    }

    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        let work = async move {
            self.0.world.secrets.create(name, data).await?;
            if name.as_str() == JOURNAL {
                self.0.world.oracle.lock().first_journal = Some(data.clone());
            }
            Ok(())
        };
        Box::pin(async move { self.0.call(&format!("create {name}"), work).await })
    }

    fn replace<'a>(
        &'a self,
        name: &'a ObjectName,
        version: &'a str,
        data: &'a SecretData,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        let work = async move {
            let secrets = &self.0.world.secrets;
            secrets.replace(name, version, data).await
        };
        Box::pin(async move { self.0.call(&format!("replace {name}"), work).await })
    }
}

impl IssuerKeyStore for HubPort {
    fn read<'a>(
        &'a self,
        target: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<StoredKeys>, HubError>> {
        Box::pin(async move {
            let world = &self.0.world;
            let outcome = self
                .0
                .call("read keys", world.issuer_keys.read(target))
                .await;
            if outcome.is_ok() {
                world
                    .oracle
                    .lock()
                    .note_key_set_read(self.0.replica, world.now());
            }
            outcome
        })
    }

    fn write<'a>(
        &'a self,
        target: &'a ObjectName,
        document: &'a str,
        replaces: Option<&'a StoredObject>,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        let work = self.0.world.issuer_keys.write(target, document, replaces);
        Box::pin(self.0.call("write keys", work))
    }
}

impl HubPort {
    /// A write of the controller: only the leader makes one.
    async fn write<T>(
        &self,
        verb: &str,
        path: &str,
        work: impl Future<Output = Result<T, HubError>>,
    ) -> Result<T, HubError> {
        let is_lease = path.contains(LEASES);
        // An Event changes nothing: it may end a reconciliation whose term is over.
        if !is_lease && !path.ends_with("/events") {
            oracle::check_leadership(&self.0, verb, path);
        }
        if is_lease && self.0.world.is_lease_stolen() {
            let fault = HubError::Forbidden("the Lease is of another".into());
            return self.0.call("lease", async { Err(fault) }).await;
        }
        let work = async {
            let outcome = work.await;
            self.0.world.note_object_write();
            outcome
        };
        self.0.call(&format!("{verb} {path}"), work).await
    }

    /// Checks a delivered object when the hub stores it.
    fn check_body(&self, body: &ObjectBody) {
        let annotations = &json!(body)["metadata"]["annotations"];
        let text = |key: &str| annotations[format!("keyferry.dev/{key}")].as_str();
        if let (Some(token_id), Some(kid), Some(target)) =
            (text("token-id"), text("key-id"), text("target"))
        {
            let token = IssuedToken {
                route: "delivery",
                token_id,
                kid,
                target,
                uid: None,
            };
            oracle::check_issuance(&self.0, &token);
        }
    }
}

impl HubObjects for HubPort {
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadObject>, HubError>> {
        Box::pin(async move {
            let work = self.0.world.objects.get(path);
            self.0.call(&format!("get {path}"), work).await
        })
    }

    fn is_used_by_flux<'a>(
        &'a self,
        _: &'a str,
        _: &'a (dyn Fn(&FluxObject) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async { Ok(false) })
    }

    fn certificate_request_times<'a>(
        &'a self,
        _: &'a str,
        _: usize,
        _: &'a (dyn Fn(&CountedRequest) -> Option<Timestamp> + Send + Sync),
    ) -> BoxFuture<'a, Result<Vec<Timestamp>, HubError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn create<'a>(
        &'a self,
        collection: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>> {
        let work = async move {
            let version = self.0.world.objects.create(collection, object).await?;
            self.check_body(object);
            Ok(version)
        };
        Box::pin(self.write("create", collection, work))
    }

    fn replace<'a>(
        &'a self,
        path: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>> {
        let work = async move {
            let version = self.0.world.objects.replace(path, object).await?;
            self.check_body(object);
            Ok(version)
        };
        Box::pin(self.write("replace", path, work))
    }

    fn delete<'a>(
        &'a self,
        path: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        let work = self.0.world.objects.delete(path, uid, version);
        Box::pin(self.write("delete", path, work))
    }

    fn create_plain<'a>(
        &'a self,
        collection: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        let work = self.0.world.objects.create_plain(collection, object);
        Box::pin(self.write("post", collection, work))
    }

    fn replace_plain<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        let work = self.0.world.objects.replace_plain(path, object);
        Box::pin(self.write("put", path, work))
    }

    fn patch<'a>(
        &'a self,
        path: &'a str,
        change: &'a Value,
    ) -> BoxFuture<'a, Result<ReducedObject, HubError>> {
        let work = self.0.world.objects.patch(path, change);
        Box::pin(self.write("patch", path, work))
    }

    fn apply_status<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        let work = self.0.world.objects.apply_status(path, object);
        Box::pin(self.write("apply", path, work))
    }
}

/// One process's audit log.
pub(crate) struct AuditLog(pub(crate) Arc<Link>);

impl AuditSink for AuditLog {
    fn record(&self, record: &AuditRecord) -> Recording {
        let line = record.to_json_line().unwrap();
        let line: Value = serde_json::from_slice(&line).unwrap();
        let (writer, told) = oneshot::channel();
        let link = Arc::clone(&self.0);
        // Each caller has its own id, so requests that end at one moment draw in any order.
        let purpose = format!(
            "audit {} {} {}",
            line["requestId"], line["route"], line["reason"]
        );
        let latency = Duration::from_millis(1 + link.draw(&purpose) % 20);
        let is_blocked = link.world.is_audit_blocked(link.replica);
        let is_early = link.world.has_mistake(Mistake::RecordLate);
        let token_id = line["tokenId"].as_str().map(str::to_owned);
        tokio::spawn(async move {
            if is_early {
                let _ = writer.send(true);
                link.wait(Duration::from_secs(2)).await;
                return link.world.oracle.lock().note_record(token_id);
            }
            link.wait(latency).await;
            if is_blocked {
                link.wait(Duration::from_secs(2)).await;
            } else if !link.world.has_mistake(Mistake::RecordDropped) {
                link.world.oracle.lock().note_record(token_id);
            }
            let _ = writer.send(!is_blocked);
        });
        Recording::told_by(told)
    }
}
