#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
use std::sync::Mutex;

use futures::future::BoxFuture;
use keyferry_api::audience::Audience;
use keyferry_api::service_account::{ServiceAccount, ServiceAccountIdentity, Uid};
use keyferry_core::caller::{ReviewedUser, TokenReviewAnswer};
use keyferry_core::{admission_policy, pairing};
use keyferry_hub::admission_policy::AdmissionPolicyReader;
use keyferry_hub::leadership::LeadershipWriter;
use keyferry_hub::live::LiveObjects;
use keyferry_hub::ports::Hub;
use keyferry_issuer::testing::{FakeClock, FakeObjects, account_of};
use keyferry_keys::bound_token::MintAnswer;
use keyferry_platform::metrics::Metrics;
use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::installed_policies::{self, InstalledPolicies};

const POLICY: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/keyferry-pairing";
const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/keyferry-pairing";
const OBJECT: &str = "/apis/keyferry.dev/v1alpha1/audiencepairings/keyferry";
const REFUSAL: &str = "serviceaccounts \"keyferry-canary\" is forbidden: ValidatingAdmissionPolicy 'keyferry-pairing' with binding \
                       'keyferry-pairing' denied request: no TargetAccess gives it";

/// A hub with one answer to TokenRequests, which notes their audiences.
struct OneAnswer {
    refusal: Mutex<Option<HubError>>,
    asked: Mutex<Vec<String>>,
}

impl Hub for OneAnswer {
    fn token_request<'a>(
        &'a self,
        identity: &'a ServiceAccountIdentity,
        audience: &'a Audience,
        _: Duration,
    ) -> BoxFuture<'a, Result<MintAnswer, HubError>> {
        self.asked
            .lock()
            .unwrap()
            .push(format!("{} {audience}", identity.account));
        let token = || MintAnswer {
            token: "a.b.c".to_owned().into(),
            expires_at: jiff::Timestamp::MAX,
        };
        let answer = self
            .refusal
            .lock()
            .unwrap()
            .clone()
            .map_or_else(|| Ok(token()), Err);
        Box::pin(async { answer })
    }

    fn token_review<'a>(
        &'a self,
        _: &'a SecretString,
        _: Option<&'a Audience>,
    ) -> BoxFuture<'a, Result<TokenReviewAnswer, HubError>> {
        Box::pin(async { Err(HubError::Busy) })
    }

    fn access_review<'a>(
        &'a self,
        _: &'a ReviewedUser,
        _: &'a ServiceAccount,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async { Err(HubError::Busy) })
    }

    fn path_review<'a>(
        &'a self,
        _: &'a ReviewedUser,
        _: &'static str,
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        Box::pin(async { Err(HubError::Busy) })
    }
}

/// A hub that reports these audiences.
struct Facts(Mutex<Result<Vec<String>, HubError>>);

impl Default for Facts {
    fn default() -> Self {
        Self(Mutex::new(Ok(vec![
            "https://kubernetes.default.svc".to_owned(),
        ])))
    }
}

impl HubFacts for Facts {
    fn api_audiences(&self) -> BoxFuture<'_, Result<Vec<String>, HubError>> {
        let answer = self.0.lock().unwrap().clone();
        Box::pin(async { answer })
    }

    fn own_username(&self) -> BoxFuture<'_, Result<String, HubError>> {
        Box::pin(async { Ok(HubSite::of_shipped_manifests().username) })
    }
}

struct Bench {
    hub: Arc<OneAnswer>,
    objects: Arc<FakeObjects>,
    clock: Arc<FakeClock>,
    leadership: LeadershipWriter,
    pairing: AdmissionPolicyReader,
    others: Vec<AdmissionPolicyReader>,
    metrics: Metrics,
    admission_policies: AdmissionPolicyChecks,
}

impl Bench {
    /// Starts a leader, and a hub with `keyferry-pairing` as shipped and the AudiencePairing as
    /// Keyferry writes it.
    fn start() -> Self {
        let (objects, clock, leadership) = (
            Arc::<FakeObjects>::default(),
            FakeClock::start(),
            LeadershipWriter::default(),
        );
        let admission_policy = |text: &str| {
            serde_saphyr::from_multiple::<Value>(text)
                .unwrap()
                .remove(0)
        };
        objects.put_foreign(
            POLICY,
            admission_policy(include_str!(
                "../../../../examples/admission-policies/pairing.yaml"
            )),
        );
        objects.put_foreign(
            BINDING,
            admission_policy(include_str!(
                "../../../../examples/admission-policies/pairing-binding.yaml"
            )),
        );
        for text in [
            include_str!("../../../../examples/admission-policies/audience.yaml"),
            include_str!("../../../../examples/admission-policies/kept.yaml"),
            include_str!("../../../../examples/admission-policies/pairing-binding.yaml"),
            include_str!("../../../../examples/admission-policies/retarget.yaml"),
            include_str!("../../../../examples/admission-policies/self.yaml"),
        ] {
            for object in serde_saphyr::from_multiple::<Value>(text).unwrap() {
                let plural = if object["kind"] == "ValidatingAdmissionPolicy" {
                    "policies"
                } else {
                    "policybindings"
                };
                let path = format!(
                    "{API_GROUP_PATH}/validatingadmission{plural}/{}",
                    object["metadata"]["name"].as_str().unwrap()
                );
                objects.put_foreign(&path, object);
            }
        }
        objects.put_foreign(
            OBJECT,
            json!({ "metadata": { "name": "keyferry" }, "pairs": { pairing::UNUSABLE_AUDIENCE: [] } }),
        );
        let hub = Arc::new(OneAnswer {
            refusal: Mutex::new(Some(HubError::Forbidden(REFUSAL.into()))),
            asked: Mutex::default(),
        });
        let (live, canary) = (
            Arc::new(LiveObjects::default()),
            account_of("keyferry-system", "keyferry-canary"),
        );
        live.set_service_account(canary.clone(), Some(Uid::new("uid-canary").unwrap()));
        leadership.set(Some(Duration::from_secs(1_000_000)));
        let (author, pairing, metrics) = (
            AdmissionPolicyWriter::for_author_policy(),
            AdmissionPolicyWriter::for_pairing_policy(),
            Metrics::default(),
        );
        let (reader, others) = (pairing.reader(), OtherAdmissionPolicies::default());
        let other_readers = others.policy_readers();
        let facts = KnownSite {
            source: Arc::<Facts>::default(),
            published: PublicationReader::default(),
            site: HubSite::of_shipped_manifests(),
            audiences: BTreeSet::new(),
            due: Duration::ZERO,
        };
        let port = Arc::<FakeObjects>::clone(&objects);
        let context = Context {
            leadership: leadership.reader(),
            metrics: metrics.clone(),
            ..Context::empty(Arc::<FakeClock>::clone(&clock), port)
        };
        let admission_policies = AdmissionPolicyChecks {
            author,
            pairing,
            labels: AdmissionPolicyWriter::for_labels_policy(),
            others,
            facts,
            trial: PairingTrial::new(Arc::<OneAnswer>::clone(&hub), live, canary),
            context: Arc::new(context),
        };
        Self {
            hub,
            objects,
            clock,
            leadership,
            pairing: reader,
            others: other_readers,
            metrics,
            admission_policies,
        }
    }

    async fn check_repeatedly(&mut self, times: usize) {
        for _ in 0..times {
            self.admission_policies.check_policies().await;
            self.clock.advance(CHECK_INTERVAL);
        }
    }

    fn asked(&self) -> usize {
        self.hub.asked.lock().unwrap().len()
    }

    fn gaps(&self) -> Vec<String> {
        self.others
            .iter()
            .filter_map(AdmissionPolicyReader::missing_part)
            .collect()
    }

    fn reports_inactive_pairing(&self) -> bool {
        self.metrics
            .exposition()
            .contains("keyferry_admission_policy_active{policy=\"keyferry-pairing\"} 0")
    }
}

#[tokio::test]
async fn a_hub_that_refuses_what_is_nobodys_is_protected() {
    let mut bench = Bench::start();
    assert!(
        bench.pairing.require_active().is_err() && bench.pairing.missing_part().is_none(),
        "not known, which is no alarm"
    );
    bench.check_repeatedly(1).await;
    assert_eq!((bench.pairing.require_active(), bench.asked()), (Ok(()), 1));
    assert_eq!(
        bench.hub.asked.lock().unwrap()[0],
        "keyferry-system/keyferry-canary keyferry.dev/nobody"
    );
    bench.check_repeatedly(6).await;
    assert_eq!(bench.asked(), 2, "again after two minutes");
    assert!(!bench.reports_inactive_pairing());
}

#[tokio::test]
async fn a_policy_that_lets_through_is_a_gap_though_its_objects_are_as_shipped() {
    let mut bench = Bench::start();
    *bench.hub.refusal.lock().unwrap() = None;
    bench.check_repeatedly(2).await;
    assert_eq!(
        bench.pairing.missing_part(),
        None,
        "it may not have been seen yet"
    );
    bench.check_repeatedly(1).await;
    assert!(
        bench
            .pairing
            .missing_part()
            .unwrap()
            .contains("minted a token for an audience that no caller may request")
    );
    assert!(bench.reports_inactive_pairing());
    *bench.hub.refusal.lock().unwrap() = Some(HubError::Unreachable("away".to_owned()));
    bench.check_repeatedly(9).await;
    assert!(
        bench.pairing.missing_part().is_some(),
        "silence fixes nothing"
    );
    *bench.hub.refusal.lock().unwrap() = Some(HubError::Forbidden(REFUSAL.into()));
    bench.check_repeatedly(1).await;
    assert_eq!(bench.pairing.require_active(), Ok(()));
}

#[tokio::test]
async fn without_its_object_the_policy_holds_nobody() {
    let mut bench = Bench::start();
    bench.objects.edit(OBJECT, |object| {
        object["pairs"] = json!({ "https://prod.example.test": ["a/b"] })
    });
    bench.check_repeatedly(3).await;
    assert!(
        bench
            .pairing
            .missing_part()
            .unwrap()
            .contains("AudiencePairing")
    );
    assert_eq!(
        bench.asked(),
        0,
        "a token for an audience that is not listed shows nothing"
    );
}

#[tokio::test]
async fn a_missing_or_narrowed_binding_is_a_gap_at_once_and_by_every_replica() {
    let mut bench = Bench::start();
    bench.leadership.set(None);
    bench.check_repeatedly(1).await;
    assert_eq!(
        (bench.pairing.require_active(), bench.asked()),
        (Ok(()), 0),
        "only the leader tries"
    );
    let narrow = json!({ "namespaceSelector": { "matchLabels": { "a": "b" } } });
    bench.objects.edit(BINDING, |binding| {
        binding["spec"]["matchResources"] = narrow
    });
    bench.check_repeatedly(1).await;
    assert!(
        bench
            .pairing
            .missing_part()
            .unwrap()
            .contains("spec.matchResources"),
        "{:?}",
        bench.pairing.missing_part()
    );
    assert_eq!(admission_policy::PAIRING_POLICY.name(), "keyferry-pairing");
}

#[tokio::test]
async fn another_refusal_or_none_is_no_alarm() {
    for refusal in [
        HubError::Forbidden("serviceaccounts/token".into()),
        HubError::Unreachable("away".to_owned()),
    ] {
        let mut bench = Bench::start();
        *bench.hub.refusal.lock().unwrap() = Some(refusal);
        bench.check_repeatedly(5).await;
        assert_eq!(bench.pairing.missing_part(), None);
    }
}

#[tokio::test]
async fn every_policy_that_is_missing_or_changed_is_named() {
    for name in [
        "keyferry-audience",
        "keyferry-kept",
        "keyferry-pairing-closed",
        "keyferry-retarget",
        "keyferry-self",
        "keyferry-self-secrets",
        "keyferry-self-certificates",
        "keyferry-self-deliveries",
        "keyferry-self-targets",
    ] {
        let mut bench = Bench::start();
        bench.check_repeatedly(1).await;
        assert_eq!(bench.gaps(), Vec::<String>::new(), "{name}");
        bench.objects.edit(
            &format!("{API_GROUP_PATH}/validatingadmissionpolicybindings/{name}"),
            |binding| {
                binding["spec"]["validationActions"] = json!(["Audit"]);
            },
        );
        bench.check_repeatedly(3).await;
        assert!(
            matches!(&bench.gaps()[..], [gap] if gap.contains(name)),
            "{name}: {:?}",
            bench.gaps()
        );
        assert!(
            bench.metrics.exposition().contains(&format!(
                "keyferry_admission_policy_active{{policy=\"{name}\"}} 0"
            )),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_list_that_lacks_an_audience_of_the_hub_is_named_and_holds_the_pairs_all_the_same() {
    let mut bench = Bench::start();
    let facts = Arc::new(Facts(Mutex::new(Ok(vec![
        "https://hub.example.com".to_owned(),
    ]))));
    bench.admission_policies.facts.source = Arc::<Facts>::clone(&facts);
    bench.check_repeatedly(1).await;
    for name in ["keyferry-audience", "keyferry-pairing", "keyferry-self"] {
        assert!(
            bench
                .gaps()
                .iter()
                .any(|gap| gap.contains(name) && gap.contains("https://hub.example.com")),
            "{name}: {:?}",
            bench.gaps()
        );
        assert!(
            bench.metrics.exposition().contains(&format!(
                "keyferry_admission_policy_active{{policy=\"{name}\"}} 0"
            )),
            "{name}"
        );
    }
    assert_eq!(
        (bench.pairing.require_active(), bench.gaps().len()),
        (Ok(()), 3),
        "the pairs are held, whatever the list lacks"
    );
    *facts.0.lock().unwrap() = Err(HubError::Unreachable("away".to_owned()));
    bench.clock.advance(FACTS_RELOAD_INTERVAL);
    bench.check_repeatedly(1).await;
    assert_eq!(
        bench.gaps().len(),
        3,
        "what was known of the hub stays known"
    );
    bench.objects.edit(POLICY, |policy| {
        let variables = policy["spec"]["variables"].as_array_mut().unwrap();
        variables
            .iter_mut()
            .find(|variable| variable["name"] == "hubAudiences")
            .unwrap()["expression"] = json!("['https://hub.example.com']");
    });
    bench.check_repeatedly(1).await;
    assert!(
        !bench
            .gaps()
            .iter()
            .any(|gap| gap.contains("keyferry-pairing")),
        "{:?}",
        bench.gaps()
    );
    assert!(!bench.reports_inactive_pairing());
}

#[tokio::test]
async fn with_objects_in_a_file_only_installed_policies_are_compared() {
    let bench = Bench::start();
    let mut installed = InstalledPolicies {
        objects: Arc::<FakeObjects>::clone(&bench.objects),
        facts: bench.admission_policies.facts,
        clock: Arc::<FakeClock>::clone(&bench.clock),
        metrics: bench.metrics.clone(),
    };
    let writers = installed_policies::policy_writers();
    installed.compare_policies(&writers).await;
    let active = |name: &str, value: u8| {
        bench.metrics.exposition().contains(&format!(
            "keyferry_admission_policy_active{{policy=\"{name}\"}} {value}"
        ))
    };
    assert!(active("keyferry-audience", 1) && active("keyferry-pairing", 1));
    assert!(
        !active("keyferry-author", 0) && !active("keyferry-author", 1),
        "it is not installed, and need not be"
    );
    bench.objects.edit(BINDING, |binding| {
        binding["spec"]["validationActions"] = json!(["Audit"])
    });
    installed.facts.source = Arc::new(Facts(Mutex::new(Ok(vec![
        "https://hub.example.com".to_owned(),
    ]))));
    bench.clock.advance(FACTS_RELOAD_INTERVAL);
    installed.compare_policies(&writers).await;
    assert!(active("keyferry-pairing", 0), "its binding only audits");
    assert!(
        active("keyferry-audience", 0),
        "its list lacks an audience of the hub"
    );
    assert!(active("keyferry-kept", 1));
}
