//! What a target makes of a token of the hub: a user, or a refusal, by its
//! AuthenticationConfiguration and its release.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use jiff::Timestamp;
use keyferry_api::audience::is_well_known_hub_audience;
use keyferry_api::config::{TargetCluster, TokenIssuer};
use keyferry_api::name::ObjectName;
use keyferry_kube_authn::Release;
use keyferry_kube_authn::config::{AuthenticationConfiguration, LoadFault, load_configuration};
use keyferry_kube_authn::token::{ServiceAccountToken, Token};
use keyferry_kube_authn::validate::{Compiled, validate_configuration};
use keyferry_kube_authn::verify::{Keys, Union, verify_token};

use crate::accounts::{Account, AccountIndex};
use crate::actor::{Actor, MetActor, MetActors};
use crate::cluster_rights::ClusterRights;
use crate::doubt::Doubt;
use crate::hub_search::HubSearch;
use crate::list::ListKind;
use crate::world::TargetFiles;

/// A target, as far as it was read.
pub(crate) struct TargetTokens<'w> {
    pub(crate) name: &'w ObjectName,
    pub(crate) cluster: Option<&'w TargetCluster>,
    pub(crate) rights: Option<ClusterRights<'w>>,
    /// The accounts that alone may get a token for its audience; `None` if each has to be asked about.
    pub(crate) listed_accounts: Option<Vec<AccountIndex>>,
    /// Why any token of the hub may be accepted.
    pub(crate) open_doubts: Vec<Doubt>,
    /// Why a token that is accepted may not be.
    pub(crate) arrival_doubts: Vec<Doubt>,
    issuer: Option<String>,
    compiled: Option<Compiled>,
    now: Timestamp,
    users: MetActors,
    outcomes: RefCell<HashMap<(AccountIndex, i64), Rc<Outcome>>>,
}

/// The target whose file has the rules of this one: for a role, the one at whose cluster it is.
fn owner_of_file<'a>(name: &'a ObjectName, cluster: Option<&'a TargetCluster>) -> &'a ObjectName {
    let role = cluster.and_then(|cluster| cluster.role.as_ref());
    role.map_or(name, |role| &role.same_as)
}

/// What the target does with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted(MetActor),
    Refused(String),
    Unknown(Doubt),
}

impl<'w> TargetTokens<'w> {
    pub(crate) fn new(search: &HubSearch<'w>, name: &'w ObjectName, now: Timestamp) -> Self {
        let hub = &search.world.hub;
        let cluster = search.policy.targets.get(name);
        let files = search.world.targets.get(owner_of_file(name, cluster));
        let files = files.map(AsRef::as_ref);
        let issuer = hub
            .issuer
            .clone()
            .or_else(|| hub.target_status(name)?.issuer);
        let listed = cluster.and_then(|cluster| search.fences.listed(cluster.audience.as_str()));
        let accounts_of = |names: &BTreeSet<String>| -> Vec<AccountIndex> {
            let names = names.iter().filter_map(|name| name.split_once('/'));
            names
                .filter_map(|(namespace, name)| search.accounts.find(namespace, name))
                .collect()
        };
        let mut target = Self {
            name,
            cluster,
            rights: files.map(|it| ClusterRights::new(Some(name), &it.rbac, &it.lists)),
            listed_accounts: listed.map(accounts_of),
            open_doubts: Vec::new(),
            arrival_doubts: Vec::new(),
            issuer,
            compiled: None,
            now,
            users: MetActors::default(),
            outcomes: RefCell::default(),
        };
        target.add_doubts_of_cluster(search);
        target.read_files(search, files);
        target
    }

    /// Adds what the TargetCluster leaves open.
    fn add_doubts_of_cluster(&mut self, search: &HubSearch<'w>) {
        let (hub, name) = (&search.world.hub, self.name);
        if self.cluster.is_none() {
            let doubt = match hub.lists.is_whole(ListKind::TargetClusters) {
                true => Doubt::fact(
                    format!(
                        "there is no usable TargetCluster {name}, so its audience is not known"
                    ),
                    "give the TargetCluster of this target",
                ),
                false => Doubt::list(ListKind::TargetClusters),
            };
            self.open_doubts.push(doubt);
        }
        if self
            .cluster
            .is_some_and(|it| it.client_certificates.is_some())
        {
            self.open_doubts.push(Doubt::fact(
                "client certificates for the hub itself are not evaluated",
                "ask the hub: kubectl auth can-i --as",
            ));
        }
        // What a Pod has for the hub itself would be a token for this target.
        let is_of_hub = |audience: &str| {
            is_well_known_hub_audience(audience)
                || search.fences.hub_audiences.contains(audience)
                || audience == hub.caller_audience
        };
        if self
            .cluster
            .is_some_and(|it| is_of_hub(it.audience.as_str()))
        {
            self.open_doubts.push(Doubt::fact(
                format!("the audience of TargetCluster {name} is the hub's own"),
                "give the target an audience of its own",
            ));
        }
        if self.cluster.is_some_and(|it| it.issuer != TokenIssuer::Hub) {
            self.arrival_doubts.push(Doubt::fact(
                "managed issuers are not evaluated",
                "ask the server: keyferry token",
            ));
        }
        if self.issuer.is_none() {
            self.arrival_doubts.push(Doubt::fact(
                format!("the status of TargetCluster {name} names no issuer"),
                "give --issuer",
            ));
        }
    }

    fn read_files(&mut self, search: &HubSearch<'w>, files: Option<&TargetFiles>) {
        let name = owner_of_file(self.name, self.cluster);
        let unread = |file: &str| {
            Doubt::fact(
                format!("{file} of target {name} was not read"),
                format!("put it into targets/{name}/{file}"),
            )
        };
        let Some(bytes) = files.and_then(|files| files.authentication.as_deref()) else {
            self.open_doubts.push(unread("authentication.yaml"));
            return;
        };
        let release = files.and_then(|files| files.release);
        match release {
            None => self.arrival_doubts.push(unread("release")),
            Some(release) => {
                if let Some(undetermined) = release.undetermined() {
                    self.arrival_doubts.push(Doubt::fact(
                        undetermined.reason,
                        format!("keyferry doctor at target {name}"),
                    ));
                }
            }
        }
        let minor = release.unwrap_or(Release::NEWEST).nearest_minor();
        let refused = |why: String| {
            Doubt::fact(
                format!("target {name} does not load its file: {why}"),
                format!("keyferry lint targets/{name}/authentication.yaml"),
            )
        };
        let loaded = match load_configuration(bytes, minor) {
            Ok(loaded) => loaded,
            Err(LoadFault::Refused(refusal)) => {
                self.open_doubts.push(refused(refusal.message));
                return;
            }
            Err(LoadFault::Undetermined(undetermined)) => {
                self.open_doubts.push(refused(undetermined.reason));
                return;
            }
        };
        self.add_doubts_of_file(search, &loaded.configuration, bytes);
        let own_issuers: Vec<String> = self
            .cluster
            .and_then(|cluster| cluster.target_issuer.as_ref())
            .map(|issuer| issuer.as_str().to_owned())
            .into_iter()
            .collect();
        match validate_configuration(&loaded.configuration, minor, &own_issuers) {
            Ok(compiled) => self.compiled = Some(compiled),
            Err(invalid) => self.open_doubts.push(refused(invalid.message())),
        }
    }

    /// Adds what the file accepts beside the tokens that are imagined.
    fn add_doubts_of_file(
        &mut self,
        search: &HubSearch<'w>,
        configuration: &AuthenticationConfiguration,
        bytes: &[u8],
    ) {
        let name = owner_of_file(self.name, self.cluster);
        // What a token for another role may do is an answer about that role.
        let other_of_cluster = |audience: &str| {
            let mut targets = search.policy.targets.iter();
            let found = targets.find(|(other, it)| {
                it.audience.as_str() == audience && owner_of_file(other, Some(*it)) == name
            });
            found.map(|(other, _)| other)
        };
        for entry in &configuration.jwt {
            let is_hub = self
                .issuer
                .as_ref()
                .is_none_or(|own| *own == entry.issuer.url);
            let own = self.cluster.map(|cluster| cluster.audience.as_str());
            for audience in entry.issuer.audiences.iter().filter(|_| is_hub) {
                if Some(audience.as_str()) != own {
                    let fix = match other_of_cluster(audience) {
                        Some(other) => format!("ask about target {other} too"),
                        None => "keep the TargetCluster's audience alone in the file".to_owned(),
                    };
                    self.open_doubts.push(Doubt::fact(
                        format!("the file of target {name} accepts the audience {audience} too"),
                        fix,
                    ));
                }
            }
        }
        // A token that is bound to a Pod has claims that the imagined one has not.
        let text = String::from_utf8_lossy(bytes);
        if [".pod", "'pod'", "\"pod\"", ".node", "'node'", "\"node\""]
            .iter()
            .any(|claim| text.contains(claim))
        {
            self.arrival_doubts.push(Doubt::fact(
                format!("the file of target {name} reads claims about a Pod"),
                "keyferry verify with a token of the Pod",
            ));
        }
    }

    /// The user that a token of the account is, at this target.
    pub(crate) fn outcome(
        &self,
        index: AccountIndex,
        account: &Account,
        lifetime: i64,
    ) -> Rc<Outcome> {
        let mut memo = self.outcomes.borrow_mut();
        let known = memo.entry((index, lifetime));
        Rc::clone(known.or_insert_with(|| Rc::new(self.find_outcome(account, lifetime))))
    }

    fn find_outcome(&self, account: &Account, lifetime: i64) -> Outcome {
        let (Some(compiled), Some(cluster), Some(issuer)) =
            (&self.compiled, self.cluster, &self.issuer)
        else {
            let known = self.open_doubts.iter().chain(&self.arrival_doubts).next();
            return Outcome::Unknown(
                known
                    .cloned()
                    .unwrap_or_else(|| Doubt::fact("the target's file was not read", "read it")),
            );
        };
        let token = Token::of_service_account(&ServiceAccountToken {
            namespace: account.namespace.to_string(),
            name: account.name.clone(),
            uid: account.uid.clone(),
            issuer: issuer.clone(),
            audience: cluster.audience.to_string(),
            issued_at: self.now.as_second(),
            lifetime,
        });
        let verdict = verify_token(compiled, &token, &Keys::none(), self.now);
        match verdict.union() {
            Union::Accepted(user) => {
                let user = Actor::user(&user.username, user.groups.iter().cloned());
                Outcome::Accepted(self.users.meet(user))
            }
            Union::Rejected(rejection) => Outcome::Refused(format!(
                "target {} refuses it ({:?}): {}",
                self.name, rejection.stage, rejection.message
            )),
            Union::Skipped => Outcome::Refused(format!(
                "no entry of the file of target {} has the issuer {issuer}",
                self.name
            )),
            Union::Undetermined(undetermined) => Outcome::Unknown(Doubt::fact(
                undetermined.reason.clone(),
                format!("keyferry whoami at target {}", self.name),
            )),
        }
    }
}
