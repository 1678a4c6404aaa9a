//! A plan of what to ask and where, and whether its target may be asked.

use keyferry_api::audience::Audience;
use keyferry_api::config::TargetCluster;
use keyferry_api::reason::Reason;
use keyferry_api::service_account::ServiceAccount;
use keyferry_hub::address_guard::AddressGuard;
use keyferry_hub::client::HubAccess;
use keyferry_kube_authn::Code;
use keyferry_kube_authn::doctor::{
    Cause, Entry, Evidence, FluxReady, Problem, Target, TokenEvidence, entry_for,
};
use keyferry_kube_authn::token::Token;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::impersonated_user::ImpersonatedUser;
use crate::listed::{ListError, ListedTargets};
use crate::{TargetAddress, found_kubeconfig, secret_of};
use keyferry_client::checked_mint;
use keyferry_client::configuration_source::ConfigurationSource;

pub(crate) const DISCOVERY: &str = "/.well-known/openid-configuration";

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
    /// A warning about the start.
    pub warning: Option<Problem>,
    /// The token to test.
    pub held: TokenEvidence,
    /// The expected issuer.
    pub issuer: Option<String>,
    /// The audiences of which the token must have one.
    pub audiences: Vec<String>,
    /// The discovery document's URL, if a flag gives it.
    pub discovery_url: Option<String>,
    /// The URL at which the document is published according to the start.
    pub published_at: Option<String>,
    /// The CA certificates of the discovery server.
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
    /// The name of the TargetCluster, if the target is listed.
    pub target_name: Option<String>,
    /// The `Ready` condition of the Flux object of the start.
    pub flux: Option<FluxReady>,
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
        self.own_issuers.extend(
            target
                .target_issuer
                .as_ref()
                .map(|issuer| issuer.as_str().to_owned()),
        );
        match ca_pem {
            // Nothing can be sent to it, so what it accepts stays unknown.
            Ok(_) if !target.is_cluster() => {}
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

    /// Returns the unverified `iss` of the token.
    pub(crate) fn token_issuer(&self) -> Option<String> {
        self.claim("iss")
    }

    /// Returns the unverified `sub` of the token.
    pub(crate) fn subject(&self) -> Option<String> {
        self.claim("sub")
    }

    fn claim(&self, name: &str) -> Option<String> {
        let TokenEvidence::Token(bytes) = &self.held else {
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
        let TokenEvidence::Token(bytes) = &self.held else {
            return None;
        };
        Token::read(bytes).ok().filter(Token::is_signed)?;
        secret_of(&self.held)
    }

    pub(crate) fn evidence(&self, file: Option<&[u8]>) -> Evidence {
        let entry = file.and_then(|file| entry_for(file, self.token_issuer().as_deref()));
        Evidence {
            start: self.start.clone(),
            start_problem: self.problem.clone(),
            start_warning: self.warning.clone(),
            held: self.held.clone(),
            // The file's own entry is checked as the target's configuration, not here.
            issuer: self.issuer.clone(),
            audiences: self.audiences.clone(),
            hub_name: self.hub_name.clone(),
            flux: self.flux.clone(),
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
            // The start does not say which CA the target uses for this URL.
            return Some(DiscoveryPlace {
                url: url.clone(),
                ca_pem: self.discovery_ca.clone(),
                stated: self.discovery_ca.is_some(),
            });
        }
        // Prefers the expected issuer. The `iss` of a tenant's token is never used here, so that a
        // tenant cannot choose where this machine fetches from.
        let issuer = self
            .issuer
            .as_deref()
            .or(issuer.filter(|_| !self.target_is_tenants))?;
        let url = format!("{}{DISCOVERY}", issuer.strip_suffix('/').unwrap_or(issuer));
        Some(DiscoveryPlace {
            url,
            ca_pem: self.discovery_ca.clone(),
            stated: false,
        })
    }

    /// Sets the target and the token from a kubeconfig.
    pub fn take(&mut self, found: found_kubeconfig::FoundKubeconfig) {
        self.target = Some(found.target);
        self.held = TokenEvidence::Token(found.token.expose_secret().as_bytes().to_vec());
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
        let listed = ListedTargets::read(source, hub).await;
        match self.compare(&listed, permission).await {
            Ok(name) => self.target_name = name,
            Err(Problem { cause, detail }) => {
                self.target = None;
                self.to_issue = None;
                self.refused = true;
                let problem = problem(cause, format!("{detail}. No token was issued or sent"));
                self.problem = Some(self.problem.unwrap_or(problem));
                return self;
            }
        }
        if let Some(TokenOrder { account, audience }) = self.to_issue.take() {
            self.held = match checked_mint::mint(hub, &account, &audience).await {
                Ok(token) => TokenEvidence::Token(token.expose_secret().as_bytes().to_vec()),
                Err(error) => TokenEvidence::Failed(problem(
                    error.reason(),
                    format!("ServiceAccount {account}: {error}"),
                )),
            };
        }
        self
    }

    /// Returns the name of the listed target, if the target is listed.
    async fn compare(
        &self,
        listed: &Result<ListedTargets, ListError>,
        permission: Permission,
    ) -> Result<Option<String>, Problem> {
        let unlisted = |detail: String| {
            problem(
                Code::TargetNotListed,
                format!("{detail}. If this target is meant, give --allow-unlisted-target as well"),
            )
        };
        let audience = self.to_issue.as_ref().map(|order| &order.audience);
        if let (Ok(known), Some(audience)) = (listed, audience)
            && known.is_callers(audience)
        {
            return Err(problem(
                Reason::AudienceIsHubs,
                format!(
                    "{:?} is the audience of Keyferry's own callers",
                    audience.as_str()
                ),
            ));
        }
        if audience.is_some_and(|audience| self.issuer.as_deref() == Some(audience.as_str())) {
            return Err(problem(
                Reason::AudienceIsHubs,
                "its audience is the hub's issuer, so the token would be a credential of the hub",
            ));
        }
        let unread = |error: &ListError| {
            unlisted(format!(
                "it could not be compared with the listed targets: {error}"
            ))
        };
        let Some(target) = self.target.as_ref().filter(|_| self.target_is_tenants) else {
            // The user's flags name the target; only the audience comes from the tenant.
            let Some(audience) =
                audience.filter(|_| !permission.audience && !permission.unlisted_target)
            else {
                return Ok(None);
            };
            return match listed {
                Ok(known) if known.with_audience(audience).is_some() => Ok(None),
                Ok(known) => Err(unlisted(format!(
                    "its audience {:?} is that of no TargetCluster of {}",
                    audience.as_str(),
                    known.place()
                ))),
                Err(error) => Err(unread(error)),
            };
        };
        let known = match listed {
            Ok(known) => known,
            Err(_) if permission.unlisted_target => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        let difference = match (known.find(target, audience).await, audience) {
            // The user's own audience need not match the list. It must not be that of another
            // listed target, though, because this target could use the token there.
            (Ok(found), Some(audience))
                if found.audience != *audience
                    && (!permission.audience || known.with_audience(audience).is_some()) =>
            {
                let (name, theirs) = (&found.name, found.audience.as_str());
                format!(
                    "its audience is {:?}, that of TargetCluster {name} with this address is \
                     {theirs:?}",
                    audience.as_str()
                )
            }
            (Ok(found), _) => return Ok(Some(found.name.to_string())),
            (Err(difference), _) => difference.to_string(),
        };
        if !permission.unlisted_target {
            return Err(unlisted(difference));
        }
        // Even then, no token is issued for the audience of a listed target, because this target
        // could use it there.
        match audience.and_then(|audience| known.with_audience(audience)) {
            Some(other) => {
                let detail = format!(
                    "{difference}; and its audience is that of TargetCluster {}, whose tokens are \
                     sent only there",
                    other.name
                );
                Err(problem(Code::TargetNotListed, detail))
            }
            None => Ok(None),
        }
    }
}

/// Builds a problem from its cause and detail.
pub(crate) fn problem(cause: impl Into<Cause>, detail: impl Into<String>) -> Problem {
    Problem {
        cause: cause.into(),
        detail: detail.into(),
    }
}

#[cfg(test)]
mod tests;
