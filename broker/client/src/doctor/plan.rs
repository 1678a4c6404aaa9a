//! A plan of what to ask and where, and whether its target may be asked.

mod comparison;

use keyferry_api::audience::Audience;
use keyferry_api::config::TargetCluster;
use keyferry_api::issuer::discovery_url;
use keyferry_api::name::Namespace;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_api::status::TargetClusterStatus;
use keyferry_hub::client::HubAccess;
use keyferry_hub::ports::HubError;
use keyferry_kube_authn::Code;
use keyferry_kube_authn::prediction::{Entry, entry_for};
use keyferry_kube_authn::token::Token;
use keyferry_platform::address_guard::AddressGuard;
use keyferry_platform::target_connection::TargetAddress;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use self::comparison::{Refusal, compare_audience, compare_tenants_target};
use crate::checked_mint;
use crate::configuration_source::ConfigurationSource;
use crate::doctor::diagnosis::{Cause, Evidence, FluxReady, Problem, Target, TokenEvidence};
use crate::doctor::found_kubeconfig::FoundCredential;
use crate::doctor::impersonated_user::ImpersonatedUser;
use crate::doctor::listed::{ListError, ListedTargets, ManagedIssuer};
use crate::doctor::{authority_text, found_kubeconfig, secret_of};

/// Where to read a discovery document.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveryPlace {
    /// The URL of the document.
    pub(crate) url: String,
    /// The CA certificates to trust there. `None` means the system's.
    pub(crate) ca_pem: Option<Vec<u8>>,
    /// Whether the user's flags or the target's file state it.
    pub(crate) stated: bool,
}

/// What to ask, and where. Flags override what the start provides.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Describes the start.
    pub start: String,
    /// The problem with the start.
    pub problem: Option<Problem>,
    /// Why the start could not be judged, such as a right that the user lacks.
    pub unknown: Option<String>,
    /// A warning about the start.
    pub warning: Option<Problem>,
    /// The namespace of the start on the hub.
    pub namespace: Option<Namespace>,
    /// The token to test.
    pub token_evidence: TokenEvidence,
    /// The expected issuer.
    pub issuer: Option<String>,
    /// Whether the user states that issuer, so that no TargetCluster replaces it.
    pub issuer_stated: bool,
    /// The audiences of which the token must have one.
    pub audiences: Vec<String>,
    /// The discovery document's URL, if a flag gives it.
    pub discovery_url: Option<String>,
    /// The URL at which the document is published according to the start.
    pub published_at: Option<String>,
    /// The CA certificates of the server of `published_at`, if the status of the TargetCluster has
    /// them.
    pub published_ca: Option<Vec<u8>>,
    /// The CA certificates of the discovery server, if a flag gives them.
    pub discovery_ca: Option<Vec<u8>>,
    /// The target to test.
    pub target: Option<TargetAddress>,
    /// The target's own issuers, if stated.
    pub own_issuers: Vec<String>,
    /// The user to impersonate at the target.
    pub impersonate: Option<ImpersonatedUser>,
    /// The objects that the Kustomization of the start has applied.
    pub inventory: Option<Vec<Value>>,
    /// Whether a tenant can have written the target. If so, nothing is sent there before it is
    /// compared with the listed targets.
    pub target_is_tenants: bool,
    /// Whether the target was refused: neither listed nor permitted.
    pub refused: bool,
    /// A token that is still to be issued. A tenant can have written its ServiceAccount and
    /// audience.
    pub to_issue: Option<TokenOrder>,
    /// The hub's name; every user name at a target starts with `<hubName>:`.
    pub hub_name: Option<String>,
    /// The role that the target is, whose users start with `<hubName>:<role>:`.
    pub role: Option<String>,
    /// The name of the TargetCluster, if the target is listed.
    pub target_name: Option<String>,
    /// The `Ready` condition of the Flux object of the start.
    pub flux: Option<FluxReady>,
    /// The ServiceAccount that Flux impersonates, as `NAMESPACE/NAME`, if the hub has none.
    pub flux_account_missing: Option<String>,
    /// Whether the target is another relying party than a Kubernetes cluster.
    pub relying_party: bool,
    /// Where requests may go. The default refuses every address that is refused without a hub.
    pub guard: AddressGuard,
    /// URLs of the user's own hub and flags, from which public documents are read unchecked.
    pub own_documents: Vec<String>,
}

/// A token that the start requires.
#[derive(Clone, Debug)]
pub struct TokenOrder {
    /// The ServiceAccount that the token is for.
    pub account: ServiceAccount,
    /// The token's audience.
    pub audience: Audience,
}

/// What the user permits for a target that is not listed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Permission {
    /// `--allow-unlisted-target` is given.
    pub unlisted_target: bool,
    /// `--audience` names the audience.
    pub audience: bool,
}

impl Plan {
    /// Creates an empty plan that only names its start.
    pub fn named(start: impl Into<String>) -> Self {
        Self {
            start: start.into(),
            ..Self::default()
        }
    }

    /// Sets what a TargetCluster says about its target, or the problem with its CA certificates.
    pub(crate) fn set_target(
        &mut self,
        target: &TargetCluster,
        ca_pem: Result<Option<Vec<u8>>, impl std::error::Error>,
    ) {
        self.target_name = Some(target.name.to_string());
        self.audiences = vec![target.audience.as_str().to_owned()];
        self.role = target.role.as_ref().map(|it| it.role.to_string());
        self.own_issuers.extend(
            target
                .target_issuer
                .as_ref()
                .map(|issuer| issuer.as_str().to_owned()),
        );
        match ca_pem {
            // Nothing can be sent to it, so what it accepts stays unknown.
            Ok(_) if !target.is_cluster() => self.relying_party = true,
            Ok(ca_pem) => {
                self.target = Some(TargetAddress {
                    url: target.address.clone(),
                    ca_pem,
                    tls_server_name: target.tls_server_name.clone(),
                    proxy_url: target.proxy_url.clone(),
                });
            }
            Err(error) => {
                self.problem = Some(problem(
                    Reason::CertificateAuthorityInvalid,
                    error.to_string(),
                ));
            }
        }
    }

    /// Sets where the target reads the documents of its issuer, as the status of its TargetCluster
    /// says.
    pub(crate) fn set_published(&mut self, status: TargetClusterStatus) {
        let Some(url) = status.discovery_url else {
            return;
        };
        self.published_at = Some(url);
        self.published_ca = status
            .discovery_certificate_authority
            .map(String::into_bytes)
            .filter(|pem| authority_text::certificates(pem).is_ok());
    }

    /// Whether the credential is none that doctor sends anywhere.
    fn sends_nothing(&self) -> bool {
        matches!(self.token_evidence, TokenEvidence::NotAToken(_)) && self.to_issue.is_none()
    }

    /// Returns the unverified `iss` of the token.
    pub(crate) fn token_issuer(&self) -> Option<String> {
        self.claim("iss")
    }

    /// Returns the unverified `sub` of the token.
    pub(crate) fn subject(&self) -> Option<String> {
        self.claim("sub")
    }

    fn claim(&self, name: &str) -> Option<String> {
        let TokenEvidence::Token(bytes) = &self.token_evidence else {
            return None;
        };
        let text = std::str::from_utf8(bytes).ok()?;
        let jwt = keyferry_keys::jwt::UnverifiedJwt::parse(text).ok()?;
        Some(jwt.claims().get(name)?.as_str()?.to_owned())
    }

    /// Returns the target's name, or its address.
    pub fn target_in_words(&self) -> String {
        let address = || {
            self.target
                .as_ref()
                .map_or_else(|| "the target".to_owned(), |target| target.url.clone())
        };
        self.target_name.clone().unwrap_or_else(address)
    }

    /// Returns the guard for public documents, which are read without credentials. The user's own
    /// hub may be the issuer, but it is never the target.
    pub(crate) fn documents_guard(&self) -> AddressGuard {
        let own = self.own_documents.iter();
        own.fold(self.guard.clone(), |guard, url| guard.with_own(url))
    }

    pub(crate) fn secret(&self) -> Option<SecretString> {
        // A token that is not a signed JWT is not sent anywhere: it may be another kind of
        // credential.
        let TokenEvidence::Token(bytes) = &self.token_evidence else {
            return None;
        };
        Token::read(bytes).ok().filter(Token::is_signed)?;
        secret_of(&self.token_evidence)
    }

    /// Returns what every user name at the target starts with, before a colon. The users of a role
    /// that lack the role's name would have the rights of the ServiceAccount itself.
    pub(crate) fn expected_name(&self) -> Option<String> {
        let hub = self.hub_name.clone()?;
        Some(match &self.role {
            Some(role) => format!("{hub}:{role}"),
            None => hub,
        })
    }

    pub(crate) fn evidence(&self, file: Option<&[u8]>) -> Evidence {
        let entry = file.and_then(|file| entry_for(file, self.token_issuer().as_deref()));
        Evidence {
            start: self.start.clone(),
            start_problem: self.problem.clone(),
            start_unknown: self.unknown.clone(),
            start_warning: self.warning.clone(),
            token_evidence: self.token_evidence.clone(),
            // The file's own entry is checked as the target's configuration, not here.
            issuer: self.issuer.clone(),
            audiences: self.audiences.clone(),
            hub_name: self.expected_name(),
            flux: self.flux.clone(),
            flux_account_missing: self.flux_account_missing.clone(),
            relying_party: self.relying_party,
            discovery_stated: entry.is_some(),
            target: Target {
                own_issuers: self.own_issuers.clone(),
                ..Target::default()
            },
            ..Evidence::default()
        }
    }

    /// Chooses where to read the discovery document: from a flag, else the target's file, else the
    /// start, else the issuer itself.
    pub(crate) fn discovery_place(
        &self,
        entry: Option<Entry>,
        issuer: Option<&str>,
    ) -> Option<DiscoveryPlace> {
        // The target uses the file's CA: a --discovery-ca in its place would hide that the file has
        // none.
        let by_file = entry.as_ref().is_some_and(|entry| {
            self.discovery_url
                .as_ref()
                .is_none_or(|url| *url == entry.discovery_url)
        });
        if let Some(url) = self.discovery_url.as_ref().filter(|_| !by_file) {
            return Some(DiscoveryPlace {
                url: url.clone(),
                ca_pem: self.discovery_ca.clone(),
                stated: true,
            });
        }
        if let Some(entry) = entry {
            let ca_pem = entry.certificate_authority.map(String::into_bytes);
            return Some(DiscoveryPlace {
                url: entry.discovery_url,
                ca_pem,
                stated: true,
            });
        }
        if let Some(url) = &self.published_at {
            // Without a CA, it is not known which one the target uses for this URL.
            let ca_pem = self.discovery_ca.clone().or(self.published_ca.clone());
            return Some(DiscoveryPlace {
                url: url.clone(),
                stated: ca_pem.is_some(),
                ca_pem,
            });
        }
        // Prefers the expected issuer. The `iss` of a tenant's token is never used here, so that a
        // tenant cannot choose where this machine fetches from.
        let issuer = self
            .issuer
            .as_deref()
            .or(issuer.filter(|_| !self.target_is_tenants))?;
        Some(DiscoveryPlace {
            url: discovery_url(issuer),
            ca_pem: self.discovery_ca.clone(),
            stated: false,
        })
    }

    /// Sets the target and the token from a kubeconfig.
    pub fn take(&mut self, found: found_kubeconfig::FoundKubeconfig) {
        self.target = Some(found.target);
        self.token_evidence = match found.credential {
            Ok(FoundCredential::Token(token)) => {
                TokenEvidence::Token(token.expose_secret().as_bytes().to_vec())
            }
            Ok(other) => TokenEvidence::NotAToken(other.unchecked().unwrap_or_default().to_owned()),
            Err(error) => {
                self.problem = Some(
                    problem(Code::KubeconfigUnusable, error.to_string()).with_fix(error.fix()),
                );
                TokenEvidence::NotAToken("there is no token that a controller takes".to_owned())
            }
        };
    }

    /// Compares what a tenant can have written with the listed targets, and issues the token that
    /// the start requires. A target that is neither listed nor permitted becomes the plan's
    /// problem: it is not contacted, and no token is issued.
    pub async fn admit(
        mut self,
        source: &ConfigurationSource,
        hub: &HubAccess,
        permission: Permission,
    ) -> Self {
        if !self.target_is_tenants && self.to_issue.is_none() {
            return self;
        }
        let listed = ListedTargets::read(source, hub, self.namespace.as_ref()).await;
        match self.compare(&listed, permission).await {
            Ok(name) => {
                self.note_listed(&listed, name.as_deref());
                self.target_name = name.or(self.target_name);
            }
            // An anonymous request tells whether the target answers, and betrays nothing.
            Err(_) if self.sends_nothing() => return self,
            Err(refusal) => {
                self.target = None;
                self.to_issue = None;
                self.refused = true;
                self.refuse(refusal);
                return self;
            }
        }
        if let Some(TokenOrder { account, audience }) = self.to_issue.take() {
            self.token_evidence = match checked_mint::mint_checked(hub, &account, &audience).await {
                Ok(token) => TokenEvidence::Token(token.expose_secret().as_bytes().to_vec()),
                Err(error) if error.is_missing_right() => {
                    TokenEvidence::Unknown(may_not_mint(&account.to_string(), &error))
                }
                Err(error) => TokenEvidence::Failed(problem(
                    error.reason(),
                    format!("ServiceAccount {account}: {error}"),
                )),
            };
        }
        self
    }

    /// Notes that an object of the start could not be read. A right that the user lacks says nothing of
    /// the object.
    pub(crate) fn note_unread(&mut self, object: &str, error: &HubError) {
        match error {
            HubError::Forbidden(right) => {
                self.unknown = Some(format!(
                    "{object} could not be read: {right}: ask the hub's admin for this right, or give \
                     --target-address and --target-token-file"
                ));
            }
            error => {
                let detail = format!("{object}: {error}");
                self.problem = Some(problem(Code::StartUnread, detail));
            }
        }
    }

    /// Expects the issuer of the target's own, and its documents below it, not the hub's.
    pub(crate) fn expect_managed(&mut self, managed: ManagedIssuer) {
        if self.issuer_stated {
            return;
        }
        self.published_at = managed.0.as_ref().map(|issuer| discovery_url(issuer));
        self.issuer = managed.0;
    }

    /// Takes what the status of the listed target says, unless the start said it.
    fn note_listed(&mut self, listed: &Result<ListedTargets, ListError>, name: Option<&str>) {
        let (Ok(listed), Some(name)) = (listed, name) else {
            return;
        };
        let Some(target) = listed.named(name) else {
            return;
        };
        let is_stated = self.published_at.is_some();
        if let Some(managed) = listed.managed_issuer(target) {
            self.expect_managed(managed);
        }
        if !is_stated {
            self.set_published(listed.status(&target.name));
        }
    }

    /// Reports why nothing was issued or sent.
    fn refuse(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Broken(Problem { cause, detail, .. }) => {
                let problem = problem(cause, format!("{detail}. No token was issued or sent"));
                self.problem.get_or_insert(problem);
            }
            Refusal::Unknown(why) => {
                let why = format!("{why}. No token was issued or sent");
                self.unknown.get_or_insert(why);
            }
        }
    }

    /// Returns the name of the listed target, if the target is listed.
    async fn compare(
        &self,
        listed: &Result<ListedTargets, ListError>,
        permission: Permission,
    ) -> Result<Option<String>, Refusal> {
        let audience = self.to_issue.as_ref().map(|order| &order.audience);
        if let Some(audience) = audience {
            self.refuse_hub_audience(listed, audience)?;
        }
        match self.target.as_ref().filter(|_| self.target_is_tenants) {
            Some(target) => compare_tenants_target(target, audience, listed, permission).await,
            // The user's flags name the target; only the audience comes from the tenant.
            None if permission.audience || permission.unlisted_target => Ok(None),
            None => match audience {
                Some(audience) => compare_audience(audience, listed).map(|()| None),
                None => Ok(None),
            },
        }
    }

    /// Refuses an audience with which the token would open Keyferry or the hub.
    fn refuse_hub_audience(
        &self,
        listed: &Result<ListedTargets, ListError>,
        audience: &Audience,
    ) -> Result<(), Refusal> {
        let is_callers = listed
            .as_ref()
            .is_ok_and(|known| known.is_callers(audience));
        if is_callers {
            return Err(Refusal::Broken(problem(
                Reason::AudienceIsHubs,
                format!(
                    "{:?} is the audience of Keyferry's own callers",
                    audience.as_str()
                ),
            )));
        }
        if self.issuer.as_deref() == Some(audience.as_str()) {
            return Err(Refusal::Broken(problem(
                Reason::AudienceIsHubs,
                "its audience is the hub's issuer, so the token would be a credential of the hub",
            )));
        }
        Ok(())
    }
}

/// Says that the user may not list the targets, and whom to ask.
pub(crate) fn may_not_list(right: &str) -> String {
    format!(
        "you may not list the TargetClusters of the hub ({right}): ask its admin for list on \
         targetclusters.keyferry.dev, or start from targetaccess/NAME with --server URL"
    )
}

/// Says that the user may not issue tokens, and whom to ask.
pub(crate) fn may_not_mint(account: &str, why: &dyn std::fmt::Display) -> String {
    format!(
        "you may not create tokens for ServiceAccount {account} on the hub ({why}): ask for create \
         on serviceaccounts/token there, or start from targetaccess/NAME with --server URL"
    )
}

/// Builds a problem from its cause and detail.
pub(crate) fn problem(cause: impl Into<Cause>, detail: impl Into<String>) -> Problem {
    Problem::new(cause, detail)
}

#[cfg(test)]
mod tests;
