//! `keyferry whoami`: shows which user a token is at a target, and whether that matches the
//! prediction.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use keyferry_client::doctor::diagnosis::{Identity, Problem};
use keyferry_client::doctor::identity::{Answered, ask};
use keyferry_kube_authn::Code;
use keyferry_kube_authn::prediction::Prediction;
use serde_json::{Value, json};

use crate::args::TARGET;
use crate::args::output_format::{FormatArgs, OutputFormat};
use crate::args::start_args::StartArgs;
use crate::command_error::CommandError;
use crate::local_file::read_small_file;
use crate::ui;

#[derive(Args)]
pub(super) struct WhoamiArgs {
    #[command(flatten)]
    start: StartArgs,
    /// The target's AuthenticationConfiguration.
    ///
    /// Shows its prediction beside the target's answer.
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    auth_config: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) async fn run(args: WhoamiArgs) -> ExitCode {
    match answered(&args).await {
        Ok(answered) => print(&answered, args.format.output),
        Err(error) => {
            ui::command_failed(&error.or_fix("keyferry doctor names the first step that fails"))
        }
    }
}

async fn answered(args: &WhoamiArgs) -> Result<Answered, CommandError> {
    let plan = args.start.plan().await?;
    let auth_config = args
        .auth_config
        .as_deref()
        .map(read_small_file)
        .transpose()?;
    Ok(ask(&plan, auth_config.as_deref()).await?)
}

/// Renders the target's responses and the file's prediction as one object; `same` is null if either
/// is unknown.
fn document(answered: &Answered) -> Value {
    let refused = |identity: &Identity| match identity {
        Identity::Refused => json!({ "refused": true }),
        Identity::Known(_) => json!({ "known": true }),
        Identity::Forbidden(_) => json!({ "forbidden": true }),
        Identity::Failed(how) => json!({ "failed": how }),
        Identity::NotAsked => Value::Null,
    };
    let user = answered.user.as_ref().map_or_else(refused, Clone::clone);
    let ignored = answered
        .problems
        .iter()
        .any(|problem| problem.cause == Code::ImpersonationIgnored.into());
    let impersonated = answered.impersonated.as_ref().map(|user| match user {
        // The target answered as another user than requested. Showing that user here would claim
        // that it was impersonated.
        Ok(_) if ignored => json!({ "ignored": true }),
        user => user.as_ref().map_or_else(refused, Clone::clone),
    });
    let problem = |problem: &Problem| json!({ "reason": problem.cause, "detail": problem.detail, "fix": problem.fix() });
    let predicted = answered
        .predicted
        .as_ref()
        .map(|prediction| match prediction {
            Prediction::Accepted(user) => json!({ "verdict": "Accepted", "user": user }),
            Prediction::Rejected(code, words) => {
                json!({ "verdict": "Rejected", "reason": code, "message": words })
            }
            Prediction::Refused(code, words) => {
                json!({ "verdict": "ConfigurationRefused", "reason": code, "message": words })
            }
            Prediction::Undetermined(code, words) => {
                json!({ "verdict": "Undetermined", "reason": code, "message": words })
            }
        });
    json!({
        "schema": "keyferry.dev/whoami/v1", "user": user, "impersonated": impersonated, "predicted": predicted,
        "differences": answered.differences(), "problems": answered.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

fn print(answered: &Answered, output: OutputFormat) -> ExitCode {
    let document = document(answered);
    let same = answered
        .differences()
        .is_none_or(|differences| differences.is_empty());
    let impersonated = answered.impersonated.as_ref().is_none_or(Result::is_ok);
    let code =
        u8::from(!(answered.user.is_ok() && impersonated && same && answered.problems.is_empty()));
    match output.document() {
        Some(format) => ui::finish_document(&document, format, ExitCode::from(code)),
        None => ui::finish_with(&table(&document), code),
    }
}

/// Renders the facts in columns, and below them each problem with its fix.
fn table(document: &Value) -> String {
    let mut text = ui::table(&rows(document));
    if document["user"]["refused"] == true {
        text.push_str("\n\nfix: keyferry doctor, with the same arguments, names the cause");
    }
    for problem in document["problems"].as_array().into_iter().flatten() {
        let part = |name: &str| ui::plain(problem[name].as_str().unwrap_or_default());
        text.push_str(&format!(
            "\n\n{}: {}\nfix: {}",
            part("reason"),
            part("detail"),
            part("fix")
        ));
    }
    text
}

fn rows(document: &Value) -> Vec<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => ui::plain(text),
        // Groups, which people read one by one.
        Value::Array(items) => {
            let plain = |item: &Value| match item {
                Value::String(text) => ui::plain(text),
                other => ui::plain(&other.to_string()),
            };
            items.iter().map(plain).collect::<Vec<_>>().join(", ")
        }
        other => ui::plain(&other.to_string()),
    };
    let mut rows = Vec::new();
    for part in ["user", "impersonated", "predicted", "differences"] {
        match &document[part] {
            Value::Null => {}
            Value::Object(members) => {
                // The user name comes first, because most users look for it.
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(name, _)| *name != "username");
                rows.extend(
                    members
                        .into_iter()
                        .map(|(name, value)| vec![part.to_owned(), name.clone(), text(value)]),
                );
            }
            Value::Array(items) if items.is_empty() => {
                rows.push(vec![part.to_owned(), "none".to_owned()])
            }
            other => rows.push(vec![part.to_owned(), text(other)]),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use keyferry_client::doctor::diagnosis::Problem;
    use keyferry_kube_authn::Code;
    use serde_json::json;

    use super::{Answered, document, table};

    #[test]
    fn a_user_that_was_not_impersonated_is_not_shown_as_if_it_were() {
        let user = || Ok(json!({ "uid": "1", "username": "hub:a", "groups": ["b", "c"] }));
        let mut answered = Answered {
            user: user(),
            impersonated: Some(user()),
            predicted: None,
            problems: Vec::new(),
        };
        assert_eq!(document(&answered)["impersonated"]["username"], "hub:a");
        answered.problems = vec![Problem::new(
            Code::ImpersonationIgnored,
            "the target answers as x",
        )];
        let told = document(&answered);
        assert_eq!(
            (&told["impersonated"], &told["problems"][0]["reason"]),
            (&json!({ "ignored": true }), &json!("ImpersonationIgnored"))
        );
        let text = table(&told);
        assert!(text.starts_with("user"), "{text}");
        assert!(
            text.lines()
                .next()
                .is_some_and(|line| line.ends_with("hub:a")),
            "the name comes first: {text}"
        );
        assert!(text.contains("  b, c\n"), "{text}");
        assert!(
            text.contains("ImpersonationIgnored: the target answers as x\nfix: "),
            "{text}"
        );
    }
    #[test]
    fn a_refused_user_is_led_to_doctor() {
        let text = table(&json!({ "user": { "refused": true }, "problems": [] }));
        assert!(
            text.ends_with("fix: keyferry doctor, with the same arguments, names the cause"),
            "{text}"
        );
    }
}
