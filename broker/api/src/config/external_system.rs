//! The systems whose id-tokens external issuers sign, and what a rule must say about each: by which
//! claims it is known which project a job belongs to, and what may run there.
//!
//! Each row is checked against the page that it names. A claim counts as a project's only if no
//! other project ever gets the same value.

use super::external_issuer::TokenUse;
use crate::service_account::ServiceAccount;

/// A system whose tokens an entry of `externalIssuers` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalSystem {
    /// Azure DevOps.
    AzureDevOps,
    /// Bitbucket Pipelines.
    Bitbucket,
    /// Buildkite.
    Buildkite,
    /// CircleCI.
    CircleCI,
    /// Forgejo Actions.
    Forgejo,
    /// GitHub Actions.
    GitHub,
    /// GitLab CI.
    GitLab,
    /// A ServiceAccount of another cluster.
    Kubernetes,
    /// Another system, by an exact `sub`.
    Other,
    /// Pulumi ESC.
    Pulumi,
    /// A workload with a SPIFFE ID.
    SPIFFE,
    /// HCP Terraform and Terraform Enterprise.
    TerraformCloud,
}

/// What is known about the tokens of one system.
#[derive(Debug)]
pub struct SystemFacts {
    /// The page that says so.
    pub page: &'static str,
    /// Claims of which a rule must have one whole list: they name one project, for ever.
    pub project: &'static [&'static [&'static str]],
    /// Claims of which a rule must have one: they say what may run there.
    pub scope: &'static [&'static str],
    /// The claim with the event that started the job, if there is one.
    pub event: Option<&'static EventClaim>,
    /// Claims that name the run, the most exact first.
    pub run: &'static [&'static str],
    /// How often one token may be exchanged, if nothing else is written.
    pub token_use: TokenUse,
    /// Whether its tokens have a `jti`. Without one, none can be used only once.
    pub has_token_id: bool,
    /// How long its tokens live at most, in seconds, if nothing else is written.
    pub longest_life: u64,
    /// The host of its issuers that everyone uses, if there is one.
    pub public_host: Option<&'static str>,
    /// Whether anyone can run one at another host.
    pub is_self_hosted: bool,
    /// The only audience of its tokens, if no job can choose one.
    pub audience: Option<&'static str>,
    /// What the scope proves, for the documentation.
    pub proves: &'static str,
}

/// A claim that names the event that started a job.
#[derive(Debug)]
pub struct EventClaim {
    /// Its name.
    pub name: &'static str,
    /// The claim with the project's number at the same system.
    pub project: &'static str,
    /// Events that need write access to the project, and whose jobs run code that is in the
    /// project.
    pub by_members: &'static [&'static str],
}

/// `merge_group` runs code that is not merged yet; `check_run`, `status` and `deployment` can follow
/// from an outsider's pull request.
pub static GITHUB_EVENT: EventClaim = EventClaim {
    name: "event_name",
    project: "repository_id",
    by_members: &[
        "push",
        "release",
        "repository_dispatch",
        "schedule",
        "workflow_dispatch",
    ],
};

/// `parent_pipeline` has the ref of a merge request, if one started the parent; `pipeline` is
/// started by another project.
pub static GITLAB_EVENT: EventClaim = EventClaim {
    name: "pipeline_source",
    project: "project_id",
    by_members: &["api", "push", "schedule", "trigger", "web"],
};

/// `workflow_call` hides the event that started the caller.
static FORGEJO_EVENT: EventClaim = EventClaim {
    name: "event_name",
    project: "repository_id",
    by_members: &["push", "release", "schedule", "workflow_dispatch"],
};

const HOUR: u64 = 3600;

/// Of a system whose jobs choose the audience, and about which nothing else is particular.
const COMMON: SystemFacts = SystemFacts {
    page: "",
    project: &[],
    scope: &[],
    event: None,
    run: &[],
    token_use: TokenUse::Once,
    has_token_id: true,
    longest_life: HOUR,
    public_host: None,
    is_self_hosted: false,
    audience: None,
    proves: "",
};

static AZURE_DEVOPS: SystemFacts = SystemFacts {
    page: "https://learn.microsoft.com/en-us/rest/api/azure/devops/distributedtask/oidctoken/create",
    project: &[&["prj_id", "def_id"]],
    scope: &["rpo_ref"],
    run: &["run_id"],
    public_host: Some("vstoken.dev.azure.com"),
    audience: Some("api://AzureADTokenExchange"),
    proves: "a full ref; whether its branch is protected, the token does not say. Every relying \
             party gets the same audience, so each of them could use the token here",
    ..COMMON
};

static BITBUCKET: SystemFacts = SystemFacts {
    page: "https://support.atlassian.com/bitbucket-cloud/docs/integrate-pipelines-with-resource-servers-using-oidc/",
    project: &[&["repositoryUuid"]],
    scope: &["branchName", "deploymentEnvironmentUuid"],
    run: &["stepUuid", "pipelineUuid"],
    token_use: TokenUse::UntilExpiry,
    has_token_id: false,
    public_host: Some("api.bitbucket.org"),
    proves: "a branch's name, which anyone who may push can choose unless it is protected; UUIDs \
             have braces",
    ..COMMON
};

static BUILDKITE: SystemFacts = SystemFacts {
    page: "https://buildkite.com/docs/agent/cli/reference/oidc",
    project: &[&["pipeline_id"]],
    scope: &["build_branch", "build_tag"],
    run: &["job_id", "build_id"],
    public_host: Some("agent.buildkite.com"),
    proves: "a branch's name; with builds of forks on, and their branches not prefixed, an outsider \
             chooses it. A job asks for `pipeline_id` with `--claim`",
    ..COMMON
};

static CIRCLECI: SystemFacts = SystemFacts {
    page: "https://circleci.com/docs/guides/permissions-authentication/openid-connect-tokens/",
    project: &[
        &["oidc.circleci.com/project-id"],
        &["oidc.circleci.com/pipeline-definition-id"],
    ],
    scope: &["oidc.circleci.com/vcs-ref"],
    run: &["oidc.circleci.com/job-id", "oidc.circleci.com/workflow-id"],
    token_use: TokenUse::UntilExpiry,
    has_token_id: false,
    public_host: Some("oidc.circleci.com"),
    is_self_hosted: true,
    proves: "a full ref; with builds of forks on, `oidc.circleci.com/vcs-origin` tells the fork",
    ..COMMON
};

static FORGEJO: SystemFacts = SystemFacts {
    page: "https://forgejo.org/docs/next/user/actions/security-openid-connect/",
    project: &[&["repository_id"]],
    scope: &["ref"],
    event: Some(&FORGEJO_EVENT),
    run: &["run_id"],
    token_use: TokenUse::UntilExpiry,
    has_token_id: false,
    is_self_hosted: true,
    proves: "a full ref; `ref_protected: \"true\"` says that some rule protects it",
    ..COMMON
};

static GITHUB: SystemFacts = SystemFacts {
    page: "https://docs.github.com/en/actions/reference/security/oidc",
    project: &[&["repository_id"], &["sub"]],
    scope: &["ref", "environment", "sub"],
    event: Some(&GITHUB_EVENT),
    run: &["run_id"],
    public_host: Some("token.actions.githubusercontent.com"),
    is_self_hosted: true,
    proves: "a full ref, or an environment, which has only the rules that you give it. A `sub` \
             counts if it has the numbers of both: `repo:acme@1/app@2:ref:refs/heads/main`",
    ..COMMON
};

static GITLAB: SystemFacts = SystemFacts {
    page: "https://docs.gitlab.com/ci/secrets/id_token_authentication/",
    project: &[&["project_id"]],
    scope: &["ref", "environment"],
    event: Some(&GITLAB_EVENT),
    run: &["job_id", "pipeline_id"],
    token_use: TokenUse::UntilExpiry,
    public_host: Some("gitlab.com"),
    is_self_hosted: true,
    proves: "a protected branch, tag or environment, which each rule must demand",
    ..COMMON
};

static KUBERNETES: SystemFacts = SystemFacts {
    page: "https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/",
    project: &[&["sub"]],
    scope: &["sub"],
    token_use: TokenUse::UntilExpiry,
    is_self_hosted: true,
    proves: "the name of a ServiceAccount of that cluster; with \
             `/kubernetes.io/serviceaccount/uid`, that nobody recreated it",
    ..COMMON
};

static OTHER: SystemFacts = SystemFacts {
    page: "https://openid.net/specs/openid-connect-core-1_0.html#IDToken",
    project: &[&["sub"]],
    scope: &["sub"],
    token_use: TokenUse::UntilExpiry,
    is_self_hosted: true,
    proves: "that the issuer gave this `sub`; whether others can get it later, only you know",
    ..COMMON
};

static PULUMI: SystemFacts = SystemFacts {
    page: "https://www.pulumi.com/docs/esc/guides/configuring-oidc/custom-audience/",
    project: &[&["sub"], &["https://pulumi.com/current_env_id"]],
    scope: &["sub", "https://pulumi.com/current_env_id"],
    token_use: TokenUse::UntilExpiry,
    public_host: Some("api.pulumi.com"),
    is_self_hosted: true,
    proves: "the environment of Pulumi ESC, which each user who may open it can use",
    ..COMMON
};

static SPIFFE: SystemFacts = SystemFacts {
    page: "https://github.com/spiffe/spiffe/blob/main/standards/JWT-SVID.md",
    project: &[&["sub"]],
    scope: &["sub"],
    token_use: TokenUse::UntilExpiry,
    has_token_id: false,
    is_self_hosted: true,
    proves: "the SPIFFE ID that the trust domain's operator gave the workload",
    ..COMMON
};

static TERRAFORM_CLOUD: SystemFacts = SystemFacts {
    page: "https://developer.hashicorp.com/terraform/cloud-docs/dynamic-provider-credentials/workload-identity-tokens",
    project: &[&["terraform_workspace_id"]],
    scope: &["terraform_run_phase"],
    run: &["terraform_run_id"],
    token_use: TokenUse::UntilExpiry,
    longest_life: 24 * HOUR,
    public_host: Some("app.terraform.io"),
    is_self_hosted: true,
    proves: "the workspace, and whether it plans or applies",
    ..COMMON
};

impl ExternalSystem {
    /// Every system with its name.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("AzureDevOps", Self::AzureDevOps),
        ("Bitbucket", Self::Bitbucket),
        ("Buildkite", Self::Buildkite),
        ("CircleCI", Self::CircleCI),
        ("Forgejo", Self::Forgejo),
        ("GitHub", Self::GitHub),
        ("GitLab", Self::GitLab),
        ("Kubernetes", Self::Kubernetes),
        ("Other", Self::Other),
        ("Pulumi", Self::Pulumi),
        ("SPIFFE", Self::SPIFFE),
        ("TerraformCloud", Self::TerraformCloud),
    ];

    /// What is known about its tokens.
    pub fn facts(self) -> &'static SystemFacts {
        match self {
            Self::AzureDevOps => &AZURE_DEVOPS,
            Self::Bitbucket => &BITBUCKET,
            Self::Buildkite => &BUILDKITE,
            Self::CircleCI => &CIRCLECI,
            Self::Forgejo => &FORGEJO,
            Self::GitHub => &GITHUB,
            Self::GitLab => &GITLAB,
            Self::Kubernetes => &KUBERNETES,
            Self::Other => &OTHER,
            Self::Pulumi => &PULUMI,
            Self::SPIFFE => &SPIFFE,
            Self::TerraformCloud => &TERRAFORM_CLOUD,
        }
    }

    /// The name of the system whose issuers everyone finds at this host.
    pub(super) fn at_public_host(host: &str) -> Option<&'static str> {
        let is_its = |(_, system): &&(&str, Self)| system.facts().public_host == Some(host);
        Self::ALL.iter().find(is_its).map(|(name, _)| *name)
    }

    /// Whether this value of a claim of [`SystemFacts::project`] or [`SystemFacts::scope`] is one
    /// that nobody else ever gets.
    ///
    /// GitHub writes the numbers of owner and repository into the `sub` of newer repositories. The
    /// `sub` of others has names alone, which can be registered again.
    pub(super) fn is_immutable(self, claim: &str, value: &str) -> bool {
        self != Self::GitHub || claim != "sub" || has_github_numbers(value)
    }

    /// Why its tokens cannot come from an issuer at this host; `None` if they can.
    ///
    /// An entry of another system at a public host would escape the checks of the true one: names
    /// there can be registered again, and outsiders cause jobs.
    pub(super) fn host_problem(self, host: &str) -> Option<String> {
        let facts = self.facts();
        if let Some(name) = Self::at_public_host(host)
            && facts.public_host != Some(host)
        {
            return Some(format!("has no issuer at {host}, which is that of {name}"));
        }
        let own = facts.public_host.filter(|_| !facts.is_self_hosted)?;
        (own != host).then(|| format!("has its issuers at {own} only, and not at {host}"))
    }

    /// Why a rule's value of a claim meets no token of this system, or one of other people too;
    /// `None` if nothing is known against it.
    pub(super) fn value_problem(self, claim: &str, value: &str) -> Option<(String, &'static str)> {
        let says = |problem: &str, fix| Some((problem.to_owned(), fix));
        match (self, claim) {
            (Self::Bitbucket, "repositoryUuid" | "deploymentEnvironmentUuid")
                if !(value.starts_with('{') && value.ends_with('}')) =>
            {
                says("has no braces, as Bitbucket writes its UUIDs", "write {…}")
            }
            (Self::TerraformCloud, "terraform_run_phase")
                if !["plan", "apply"].contains(&value) =>
            {
                says("is no phase of a run", "write plan or apply")
            }
            (Self::Forgejo, "event_name") if value == "workflow_call" => says(
                "hides the event that started the caller, such as pull_request_target",
                "call the workflow from none that outsiders start, and leave event_name out",
            ),
            (Self::Kubernetes, "sub") if ServiceAccount::from_username(value).is_err() => says(
                "is no ServiceAccount",
                "write system:serviceaccount:<namespace>:<name>",
            ),
            (Self::Kubernetes, name) if name.starts_with("kubernetes.io") => says(
                "is no text in its tokens, but inside of one",
                "write a JSON Pointer, such as /kubernetes.io/serviceaccount/uid",
            ),
            (Self::Other, "sub") if ServiceAccount::from_username(value).is_ok() => says(
                "is a ServiceAccount of a cluster",
                "write system: Kubernetes, and remove subject",
            ),
            (Self::SPIFFE, "sub") if !value.starts_with("spiffe://") => {
                says("is no SPIFFE ID", "write spiffe://<trust domain>/<path>")
            }
            (Self::Pulumi, "sub")
                if !value.starts_with("pulumi:org:") || !value.contains(":env:") =>
            {
                says(
                    "has names of Pulumi's first issuer, which others can get later",
                    "use the issuer https://api.pulumi.com/oidc/v2, and its sub \
                     pulumi:org:<id>:env:<id>",
                )
            }
            (Self::Forgejo | Self::GitHub, "ref")
            | (Self::CircleCI, "oidc.circleci.com/vcs-ref")
                if !value.starts_with("refs/") =>
            {
                says("is no whole ref", "write it whole, such as refs/heads/main")
            }
            _ => None,
        }
    }
}

/// Whether a `sub` of GitHub has the numbers of owner and repository, and then a ref or an
/// environment: `repo:acme@1/app@2:ref:refs/heads/main`.
fn has_github_numbers(subject: &str) -> bool {
    let numbered = |text: &str| {
        text.split_once('@').is_some_and(|(name, number)| {
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            !name.is_empty() && !number.is_empty() && is_number
        })
    };
    let parts = subject.strip_prefix("repo:").and_then(|rest| {
        let (repository, scope) = rest.split_once(':')?;
        let (owner, name) = repository.split_once('/')?;
        Some((owner, name, scope))
    });
    parts.is_some_and(|(owner, name, scope)| {
        let environment = scope.strip_prefix("environment:");
        let has_scope = scope.starts_with("ref:refs/")
            || environment.is_some_and(|environment| !environment.is_empty());
        numbered(owner) && numbered(name) && has_scope
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_says_where_its_facts_stand_and_what_its_scope_proves() {
        for (name, system) in ExternalSystem::ALL {
            let facts = system.facts();
            assert!(facts.page.starts_with("https://"), "{name}");
            assert!(
                !facts.project.is_empty() && !facts.scope.is_empty(),
                "{name}"
            );
            assert!(
                facts.project.iter().all(|claims| !claims.is_empty()),
                "{name}"
            );
            assert!(!facts.proves.is_empty(), "{name}");
            assert!(
                facts.has_token_id || facts.token_use == TokenUse::UntilExpiry,
                "{name}: no token of it could be used"
            );
        }
    }

    #[test]
    fn a_subject_of_github_counts_with_both_numbers_and_a_scope() {
        for (subject, counts) in [
            ("repo:acme@1/app@2:ref:refs/heads/main", true),
            ("repo:acme@1/app@2:environment:production", true),
            ("repo:acme_emu@12/my.app-x@34:ref:refs/tags/v1", true),
            ("repo:acme/app:ref:refs/heads/main", false),
            ("repo:acme@1/app:ref:refs/heads/main", false),
            ("repo:acme/app@2:ref:refs/heads/main", false),
            ("repo:acme@1/app@:ref:refs/heads/main", false),
            ("repo:acme@1/app@2x:ref:refs/heads/main", false),
            ("repo:@1/@2:ref:refs/heads/main", false),
            ("repo:acme@1@3/app@2:ref:refs/heads/main", false),
            ("repo:acme@1/app@2", false),
            ("repo:acme@1/app@2:pull_request", false),
            ("repo:acme@1/app@2:environment:", false),
            ("repo:acme@1/app@2:ref:main", false),
            ("x:repo:acme@1/app@2:ref:refs/heads/main", false),
            ("", false),
        ] {
            let github = ExternalSystem::GitHub;
            assert_eq!(github.is_immutable("sub", subject), counts, "{subject}");
        }
        assert!(ExternalSystem::GitHub.is_immutable("repository_id", "1"));
        assert!(ExternalSystem::Other.is_immutable("sub", "1"));
    }
}
