//! `keyferry can-i`: whether a token, or the user that Flux impersonates with it, may do something
//! at a target.

mod application;
mod rules_list;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use keyferry_client::doctor::identity::calls;
use keyferry_client::doctor::plan::Plan;
use keyferry_client::doctor::resource_attributes::ResourceAttributes;
use keyferry_client::doctor::resources::{self, ResourceError};
use keyferry_client::doctor::target_calls::{AccessError, TargetCalls};
use keyferry_kube_authn::Code;
use keyferry_kube_authn::rights::role_for;
use serde_json::json;

use crate::args::TARGET;
use crate::args::output_format::FormatArgs;
use crate::args::start_arg::StartArg;
use crate::args::start_args::attributes;
use crate::args::target_args::TargetArgs;
use crate::command_error::CommandError;
use crate::role_manifest::with_bindings;
use crate::ui;

/// The reason if the target refuses the impersonation itself.
const DENIED: Code = Code::ImpersonationDenied;
/// The exit code if the target could not be asked.
const UNDETERMINED: u8 = 3;
/// The largest standard input that is read.
const MAX_INPUT: usize = 16 << 20;

#[derive(Args)]
pub(super) struct CanIArgs {
    /// The verb, as kubectl takes it, or `apply` with -f.
    #[arg(required_unless_present = "list")]
    verb: Option<String>,
    /// The resource, as kubectl takes it: RESOURCE[.GROUP][/SUBRESOURCE], a short name or a kind.
    ///
    /// With `apply`, what to start from, as --from.
    #[arg(required_unless_present_any = ["filename", "list"])]
    resource: Option<String>,
    /// List what the user may do at the target.
    ///
    /// In --target-namespace, else in default, and in the whole cluster.
    #[arg(long, conflicts_with_all = ["verb", "resource", "filename"])]
    list: bool,
    /// Objects from a file, or - for standard input.
    ///
    /// With `apply`, those that Flux is to apply, also from a folder of files; without it, what a
    /// Kustomization has applied before, by its inventory. Overlays are not built: pipe `kubectl
    /// kustomize DIR` into -f -.
    #[arg(short, long, value_name = "PATH")]
    filename: Option<PathBuf>,
    /// Objects from a file, or - for standard input.
    ///
    /// The hub's TargetClusters and TargetAccesses, as -f of the other commands takes them; here -f
    /// has the objects to apply, as in kubectl.
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    objects: Option<PathBuf>,
    /// Namespace at the target [default: default]
    ///
    /// Of what is checked, and of objects without one.
    #[arg(long, value_name = "NAMESPACE", help_heading = TARGET)]
    target_namespace: Option<String>,
    /// What to start from [default: the flags alone]
    ///
    /// KIND is targetaccess, targetcluster, secret, configmap, kustomization or helmrelease, or a
    /// short name of these.
    #[arg(long, value_name = "KIND/NAME")]
    from: Option<StartArg>,
    /// Namespace on the hub [default: that of the hub's context]
    ///
    /// The namespace of the starting object.
    #[arg(
        short,
        long,
        alias = "from-namespace",
        env = "KEYFERRY_NAMESPACE",
        value_name = "NAMESPACE"
    )]
    namespace: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) async fn run(args: CanIArgs) -> ExitCode {
    let asked = match (args.verb.as_deref(), &args.filename, &args.resource) {
        (None, ..) => rules_list::list(&args).await,
        (Some("apply"), path, start) => {
            application::can_apply(&args, path.as_deref(), start.as_deref()).await
        }
        (Some(_), Some(_), _) => Err(CommandError::new(
            "a file is given, but the verb is not apply",
        )),
        (Some(verb), None, Some(resource)) => can(&args, verb, resource).await,
        (Some(_), None, None) => Err(CommandError::new("neither a resource nor a file is given")),
    };
    asked.unwrap_or_else(|error| {
        let error = error.or_fix("keyferry doctor names the first step that fails");
        ui::command_misused(&error)
    })
}

/// The answer to a question about rights, in words, JSON and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Undetermined,
}

impl Answer {
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Undetermined => "undetermined",
        }
    }

    fn exit_code(self) -> ExitCode {
        match self {
            Self::Yes => ExitCode::SUCCESS,
            Self::No => ExitCode::FAILURE,
            Self::Undetermined => ExitCode::from(UNDETERMINED),
        }
    }

    /// The exit code after the answer was printed, or could not be.
    fn exit_code_after(self, printed: std::io::Result<()>) -> ExitCode {
        match printed {
            Ok(()) => self.exit_code(),
            Err(_) => ExitCode::FAILURE,
        }
    }
}

/// What is asked about one verb, after the target's discovery.
struct Question<'a> {
    verb: &'a str,
    wanted: ResourceAttributes,
    /// The namespace, if the resource has one and the caller names it.
    namespace: Option<&'a str>,
    is_namespaced: bool,
    /// Why the resource was not looked up.
    unread: Option<String>,
}

impl<'a> Question<'a> {
    async fn resolve(
        args: &'a CanIArgs,
        verb: &'a str,
        resource: &str,
        calls: &TargetCalls,
        target: &str,
    ) -> Result<Self, CommandError> {
        let namespace = args.target_namespace.as_deref();
        let typed = attributes(verb, resource, namespace);
        let (wanted, is_namespaced, unread) = match resources::resolve(calls, &typed).await {
            Ok(resolved) => (resolved.attributes, resolved.namespaced, None),
            Err(ResourceError::Unread(why)) => (typed, true, Some(why)),
            Err(error @ ResourceError::Unknown { .. }) => {
                return Err(CommandError::with_fix(
                    format!("looking up {resource} at {target}: {error}"),
                    "write a resource as kubectl api-resources prints it, such as deployments.apps",
                ));
            }
        };
        Ok(Self {
            verb,
            wanted,
            namespace: namespace.filter(|_| is_namespaced),
            is_namespaced,
            unread,
        })
    }

    async fn ask(&self, calls: &TargetCalls, plan: &Plan) -> Result<bool, AccessError> {
        match (
            calls.access(&self.wanted, plan.impersonate.as_ref()).await,
            &self.unread,
        ) {
            // Of a resource by another name than its own, a no says nothing.
            (Ok(false), Some(why)) => Err(AccessError::Unknown(why.clone())),
            (asked, _) => asked,
        }
    }

    fn scope(&self) -> &str {
        match (self.is_namespaced, self.namespace) {
            (false, _) => "the cluster",
            (true, Some(namespace)) => namespace,
            (true, None) => "all namespaces (--target-namespace asks for one)",
        }
    }

    /// The answer, and the sentence behind its word.
    fn answer_in_words(
        &self,
        asked: &Result<bool, AccessError>,
        user: &str,
        target: &str,
    ) -> (Answer, String) {
        let action = format!(
            "{} {} in {}",
            self.verb,
            self.wanted.full_name(),
            self.scope()
        );
        match asked {
            Ok(true) => (Answer::Yes, format!("{user} may {action} at {target}")),
            Ok(false) => (Answer::No, format!("{user} may not {action} at {target}")),
            Err(AccessError::Impersonation(why)) => {
                (Answer::No, not_as(user, target, &why.to_string()))
            }
            Err(AccessError::Unknown(why)) => (Answer::Undetermined, format!("{action}: {why}")),
        }
    }

    /// Prints the objects that would allow it.
    fn propose_role(&self, user: &str, target: &str) {
        let right = (
            self.wanted.group.as_str(),
            &*self.wanted.resource_path(),
            self.verb,
        );
        ui::note(&format!(
            "these would allow it; review and apply them at {target}:"
        ));
        ui::note_block(&with_bindings(&[role_for(self.namespace, &[right])], user));
    }
}

async fn can(args: &CanIArgs, verb: &str, resource: &str) -> Result<ExitCode, CommandError> {
    refuse_swapped(verb, resource)?;
    let plan = args
        .target
        .plan(
            args.from.as_ref(),
            args.namespace.as_deref(),
            args.objects.as_deref(),
        )
        .await?;
    let target = plan.target_in_words();
    let calls = calls(&plan).await?;
    let user = user(&calls, &plan).await?;
    let question = Question::resolve(args, verb, resource, &calls, &target).await?;
    let asked = question.ask(&calls, &plan).await;
    let (answer, detail) = question.answer_in_words(&asked, &user, &target);
    let denied = matches!(asked, Err(AccessError::Impersonation(_))).then_some(DENIED);
    if let Some(format) = args.format.output.document() {
        let document = json!({
            "schema": "keyferry.dev/can-i/v1", "answer": answer.word(), "detail": (answer != Answer::Yes).then_some(&detail), "user": user,
            "target": target, "reason": denied.map(Code::name), "fix": denied.map(Code::fix),
        });
        return Ok(ui::finish_document(&document, format, answer.exit_code()));
    }
    let printed = ui::result(&ui::plain(&format!("{}: {detail}", answer.word())));
    if let Some(code) = denied {
        ui::note(code.name());
        ui::note(&format!("fix: {}", code.fix()));
    }
    if let Ok(false) = asked {
        question.propose_role(&user, &target);
    }
    Ok(answer.exit_code_after(printed))
}

/// The verbs of Kubernetes' own authorizer and admission.
const VERBS: [&str; 15] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
    "proxy",
];

/// Refuses a resource in the place of the verb: no target would deny it by mistake.
fn refuse_swapped(verb: &str, resource: &str) -> Result<(), CommandError> {
    let is_verb = |word: &str| VERBS.contains(&word.to_ascii_lowercase().as_str());
    if is_verb(resource) && !is_verb(verb) {
        return Err(CommandError::with_fix(
            format!("{resource} is a verb, and {verb} is none"),
            "write the verb first: keyferry can-i VERB RESOURCE",
        ));
    }
    Ok(())
}

/// Says that the bearer may not act as the user.
fn not_as(user: &str, target: &str, why: &str) -> String {
    format!(
        "the bearer of the token may not act as {} at {target}: {}",
        ui::plain(user),
        ui::plain(why),
    )
}

/// Returns the user name that the target applies: the bearer's, or that of the impersonated user.
async fn user(calls: &TargetCalls, plan: &Plan) -> Result<String, CommandError> {
    let Some(wanted) = &plan.impersonate else {
        let user = calls.review(None).await.ok();
        let name = user.as_ref().and_then(|user| user["username"].as_str());
        return Ok(name.unwrap_or("the bearer of the token").to_owned());
    };
    // A response without a user, such as that of another server, says nothing about impersonation.
    let answered = calls.review(Some(wanted)).await.ok();
    let answered = answered.filter(|answered| answered["username"].is_string());
    match answered.and_then(|answered| wanted.ignored(&answered)) {
        Some(problem) => Err(CommandError::with_fix(
            format!(
                "asking as {}: {}: {}",
                wanted.name,
                problem.cause.name(),
                problem.detail
            ),
            problem.cause.fix(),
        )),
        None => Ok(wanted.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::refuse_swapped;

    #[test]
    fn a_verb_in_the_place_of_the_resource_is_noticed() {
        assert!(refuse_swapped("pods", "get").is_err());
        assert!(refuse_swapped("pods", "LIST").is_err());
        for (verb, resource) in [("get", "pods"), ("frobnicate", "pods"), ("get", "watch")] {
            assert!(refuse_swapped(verb, resource).is_ok(), "{verb} {resource}");
        }
    }
}
