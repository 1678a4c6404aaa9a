//! Checks of objects against each other and against the server's settings.
//!
//! The objects are checked as written, so that another mistake in one of them does not hide these.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Document, Origin};
use super::duration::print_duration;
use super::mistake::Mistake;
use super::server::ServerConfiguration;
use super::server_spec::ObjectSource;
use super::target::TargetCluster;
use crate::lifetime;
use crate::managed_issuer::{self, INERT_AUDIENCE};
use crate::name::ObjectName;

/// Checks documents one after the other, and remembers what no two of them may share.
pub(super) struct CrossChecks<'a> {
    /// The audience of callers' tokens.
    caller_audience: &'a str,
    /// `None` if the ServerConfiguration has mistakes.
    server: Option<&'a ServerConfiguration>,
    has_server_document: bool,
    /// The kinds, namespaces and names so far.
    names: BTreeSet<(&'a str, &'a str, &'a str)>,
    /// The names of the targets by their audiences.
    audience_owners: BTreeMap<&'a str, &'a str>,
    /// The names of the targets by their DNS names.
    dns_owners: BTreeMap<&'a str, &'a str>,
    /// The names of the roles by their `sameAs` and `role`.
    role_owners: BTreeMap<(&'a str, &'a str), &'a str>,
}

impl<'a> CrossChecks<'a> {
    pub(super) fn new(caller_audience: &'a str, server: Option<&'a ServerConfiguration>) -> Self {
        Self {
            caller_audience,
            server,
            has_server_document: false,
            names: BTreeSet::new(),
            audience_owners: BTreeMap::new(),
            dns_owners: BTreeMap::new(),
            role_owners: BTreeMap::new(),
        }
    }

    /// Checks that there is only one ServerConfiguration, and that it is the first document.
    pub(super) fn check_server_place(
        &mut self,
        document: &Document,
        index: usize,
        mistakes: &mut Vec<Mistake>,
    ) {
        if self.has_server_document {
            mistakes.push(document.mistake(
                "kind",
                "the file has a second ServerConfiguration",
                "keep one, as the first document",
            ));
        } else if index != 0 {
            mistakes.push(document.mistake(
                "kind",
                "the ServerConfiguration is not the first document",
                "move it up",
            ));
        }
        self.has_server_document = true;
    }

    /// Checks a TargetCluster. `target` is what was read of it, unless that has mistakes.
    pub(super) fn check_target(
        &mut self,
        document: &'a Document,
        target: Option<&TargetCluster>,
        mistakes: &mut Vec<Mistake>,
    ) {
        self.check_object(document, mistakes);
        self.check_audience(document, mistakes);
        self.check_dns_name(document, mistakes);
        self.check_role(document, mistakes);
        let Some(server) = self.server else { return };
        if document.text("/spec/issuer") == "Keyferry" {
            check_managed_issuer(document, server, mistakes);
        }
        if let Some(target) = target {
            check_activation_delay(document, target, server, mistakes);
        }
    }

    /// Checks a TargetCluster or a TargetAccess.
    pub(super) fn check_object(&mut self, document: &'a Document, mistakes: &mut Vec<Mistake>) {
        let (kind, name) = (document.kind(), document.text("/metadata/name"));
        let key = (kind, document.text("/metadata/namespace"), name);
        // The intended one of two objects with one name cannot be guessed.
        if !name.is_empty() && !self.names.insert(key) {
            mistakes.push(document.mistake(
                "metadata.name",
                format!("a second {kind} has this name"),
                "rename or remove one of them",
            ));
        }
        // Objects in the file would be ignored silently.
        let of_hub = |server: &ServerConfiguration| server.objects == ObjectSource::CustomResources;
        if *document.origin() == Origin::File && self.server.is_some_and(of_hub) {
            mistakes.push(document.mistake(
                "",
                "is in the file, but the ServerConfiguration has objects: CustomResources",
                "apply it to the hub with kubectl and remove it here, or write objects: File",
            ));
        }
    }

    /// Refuses an audience that is used twice or belongs to Keyferry. Each of two targets with one
    /// audience would accept the other's tokens, and a target with Keyferry's own audience could use
    /// its tokens to call Keyferry.
    fn check_audience(&mut self, document: &'a Document, mistakes: &mut Vec<Mistake>) {
        let audience = document.text("/spec/audience");
        if audience.is_empty() {
            return;
        }
        let mut refuse = |problem: String, fix| {
            mistakes.push(document.mistake("spec.audience", problem, fix));
        };
        if audience == INERT_AUDIENCE {
            refuse(
                "is the audience of tokens that nothing accepts, which Keyferry uses to query the \
                 hub"
                .to_owned(),
                "choose another audience",
            );
        }
        if audience == self.caller_audience {
            refuse(
                "is Keyferry's own callerAudience, so a target could use its tokens to call \
                 Keyferry"
                    .to_owned(),
                "choose another audience",
            );
        }
        let name = document.text("/metadata/name");
        if let Some(owner) = first_owner(&mut self.audience_owners, audience, name) {
            let problem = format!(
                "is also the audience of TargetCluster/{owner}, so a token for one would open the \
                 other"
            );
            refuse(problem, "give each target an audience of its own");
        }
    }

    /// Refuses a DNS name that two targets have: the path of its inputs would be the path of two
    /// clusters.
    fn check_dns_name(&mut self, document: &'a Document, mistakes: &mut Vec<Mistake>) {
        let dns_name = document.text("/spec/identity/clusterDNS");
        let name = document.text("/metadata/name");
        if dns_name.is_empty() {
            return;
        }
        if let Some(owner) = first_owner(&mut self.dns_owners, dns_name, name) {
            mistakes.push(document.mistake(
                "spec.identity.clusterDNS",
                format!("is also the DNS name of TargetCluster/{owner}"),
                "give each target a DNS name of its own",
            ));
        }
    }

    /// Refuses a second role of one name at one target: the target would give both the same user.
    fn check_role(&mut self, document: &'a Document, mistakes: &mut Vec<Mistake>) {
        let key @ (base, role) = (document.text("/spec/sameAs"), document.text("/spec/role"));
        let name = document.text("/metadata/name");
        if base.is_empty() || role.is_empty() {
            return;
        }
        if let Some(owner) = first_owner(&mut self.role_owners, key, name) {
            mistakes.push(document.mistake(
                "spec.role",
                format!("is also the role of TargetCluster/{owner} at {base}"),
                "give each role of a target a name of its own",
            ));
        }
    }

    /// Returns the mistake of a file without a ServerConfiguration. Call it after all documents.
    pub(super) fn missing_server(&self) -> Option<Mistake> {
        (!self.has_server_document).then(|| {
            Mistake::whole_file(
                "the file holds no ServerConfiguration",
                "add one as its first document",
            )
        })
    }
}

/// Returns the target that has the value already; else makes `name` its owner.
fn first_owner<'a, K: Ord>(
    owners: &mut BTreeMap<K, &'a str>,
    value: K,
    name: &'a str,
) -> Option<&'a str> {
    let owner = owners.get(&value).copied();
    if owner.is_none() {
        owners.insert(value, name);
    }
    owner
}

/// Checks a target with `issuer: Keyferry`: whether managed issuers are enabled, and whether its
/// issuer is valid.
fn check_managed_issuer(
    document: &Document,
    server: &ServerConfiguration,
    mistakes: &mut Vec<Mistake>,
) {
    if !server.managed_issuers.enabled {
        mistakes.push(document.mistake(
            "spec.issuer",
            "Keyferry signs nothing itself: its managed issuers are not enabled",
            "start it with --enable-keyferry-issuer, or set managedIssuers.enabled, or use Hub \
             with an https --service-account-issuer on the hub",
        ));
    }
    let Ok(name) = ObjectName::new(document.text("/metadata/name")) else {
        return;
    };
    match managed_issuer::managed_issuer_url(&server.public_url, &name) {
        Ok(issuer) if managed_issuer::secret_name(&name).is_ok() => {
            if document.text("/spec/targetIssuer") == issuer.as_str() {
                mistakes.push(document.mistake(
                    "spec.targetIssuer",
                    "is the issuer that Keyferry makes for this target",
                    "write the target's own --service-account-issuer",
                ));
            }
        }
        _ => mistakes.push(document.mistake(
            "metadata.name",
            "is too long for a managed issuer: it is part of the issuer's URL and of a Secret's \
             name",
            "choose a name of at most 200 characters",
        )),
    }
}

/// Checks that the lifetime leaves a new key of the hub its activation delay before tokens signed
/// with it may be issued.
fn check_activation_delay(
    document: &Document,
    target: &TargetCluster,
    server: &ServerConfiguration,
    mistakes: &mut Vec<Mistake>,
) {
    let delay = lifetime::activation_delay(server.max_age);
    let least = lifetime::least_for(delay);
    if target.lifetime.default >= least {
        return;
    }
    let problem = format!(
        "{} is too short for a new key of the hub: with discovery.maxAge {} it is published {} \
         before its tokens are issued, and a token is renewed halfway through its life at the \
         earliest, 70s before the old one becomes unusable",
        print_duration(target.lifetime.default),
        print_duration(server.max_age),
        print_duration(delay),
    );
    let fix = format!(
        "write at least {} (twice {} and 70s), or a shorter discovery.maxAge",
        print_duration(least),
        print_duration(delay)
    );
    mistakes.push(document.mistake("spec.tokenLifetime.default", problem, fix));
}
