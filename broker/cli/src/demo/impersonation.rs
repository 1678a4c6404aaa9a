//! The step in which the workload impersonates a user of the target.

use keyferry_client::doctor::impersonated_user::ImpersonatedUser;
use keyferry_testing::EmbeddedError;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::DemoError;
use super::reviewed_user::{NoUser, self_subject_review, show_user};
use super::screen::Screen;
use super::stage::Stage;

const GROUP: &str = "rbac.authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Shows whether `bearer`, the workload's user name at the target, may impersonate. Without RBAC
/// objects of the user, the demo then grants it.
pub(super) async fn play(
    stage: &Stage,
    screen: &Screen,
    token: &SecretString,
    bearer: &str,
) -> Result<(), DemoError> {
    let allowed = impersonate(stage, screen, token).await?;
    if allowed || stage.options.rbac.is_some() {
        return Ok(());
    }
    let (what, objects) = grant(bearer, &stage.options.impersonated);
    screen.wire(&format!("the target's admin grants the workload {what}"))?;
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    stage
        .target
        .add_rbac(&text.join("\n---\n"))
        .map_err(EmbeddedError::from)?;
    impersonate(stage, screen, token).await?;
    Ok(())
}

/// Shows the user that the workload is when it impersonates; returns whether it may.
async fn impersonate(
    stage: &Stage,
    screen: &Screen,
    token: &SecretString,
) -> Result<bool, DemoError> {
    let wanted = &stage.options.impersonated;
    screen.wire("workload -> target  POST /apis/authentication.k8s.io/v1/selfsubjectreviews")?;
    for (name, value) in wanted.headers() {
        screen.wire(&format!("  {name}: {value}"))?;
    }
    match self_subject_review(stage, token, Some(wanted)).await? {
        Ok(user) => {
            show_user(screen, &user)?;
            Ok(true)
        }
        Err(NoUser { status, message }) => {
            screen.refusal(&format!("{status} {}", short(&message)))?;
            Ok(false)
        }
    }
}

/// The part of a refusal that says who may not do what.
fn short(message: &str) -> &str {
    let user = message.find("User ").unwrap_or_default();
    let text = &message[user..];
    text.split(" in API group").next().unwrap_or(text)
}

/// Returns the RBAC objects that let the bearer impersonate this user and no other, and their
/// rights in words.
fn grant(bearer: &str, wanted: &ImpersonatedUser) -> (String, Vec<Value>) {
    let rule = |verb: &str, group: &str, resource: &str, name: &str| {
        json!({
            "apiGroups": [group], "resources": [resource], "resourceNames": [name],
            "verbs": [verb],
        })
    };
    let account_alone = wanted
        .account()
        .filter(|_| *wanted == ImpersonatedUser::named(&wanted.name));
    if let Some((namespace, name)) = account_alone {
        // The narrow form of Kubernetes 1.36: this user, and only in this request.
        let (user, request) = (
            "impersonate:serviceaccount",
            "impersonate-on:serviceaccount:create",
        );
        let on = json!({
            "apiGroups": [AUTHENTICATION], "resources": ["selfsubjectreviews"], "verbs": [request],
        });
        let may_be = rule(user, AUTHENTICATION, "serviceaccounts", name);
        let mut objects = Vec::from(role_and_binding(Some(namespace), bearer, vec![may_be]));
        objects.extend(role_and_binding(None, bearer, vec![on]));
        let what = format!(
            "{user} on serviceaccounts {namespace}/{name}, and {request} on selfsubjectreviews"
        );
        return (what, objects);
    }
    let verb = "impersonate";
    let mut rules = vec![match wanted.account() {
        Some((_, name)) => rule(verb, "", "serviceaccounts", name),
        None => rule(verb, "", "users", &wanted.name),
    }];
    for group in &wanted.groups {
        rules.push(rule(verb, "", "groups", group));
    }
    if let Some(uid) = &wanted.uid {
        rules.push(rule(verb, AUTHENTICATION, "uids", uid));
    }
    for (key, value) in &wanted.extra {
        let resource = format!("userextras/{}", key.to_ascii_lowercase());
        rules.push(rule(verb, AUTHENTICATION, &resource, value));
    }
    let what = "the verb impersonate on each part of this user".to_owned();
    (what, Vec::from(role_and_binding(None, bearer, rules)))
}

fn role_and_binding(namespace: Option<&str>, bearer: &str, rules: Vec<Value>) -> [Value; 2] {
    let (kind, metadata) = match namespace {
        Some(namespace) => (
            "Role",
            json!({ "name": "impersonate", "namespace": namespace }),
        ),
        None => ("ClusterRole", json!({ "name": "impersonate" })),
    };
    let role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "rules": rules,
    });
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": format!("{kind}Binding"),
        "metadata": metadata,
        "roleRef": { "apiGroup": GROUP, "kind": kind, "name": "impersonate" },
        "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": bearer }],
    });
    [role, binding]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_names_every_part_and_nothing_else() {
        let verbs = |wanted: &ImpersonatedUser| {
            let (_, objects) = grant("hub:a", wanted);
            let rules = objects
                .iter()
                .flat_map(|it| it["rules"].as_array().cloned());
            let rules: Vec<String> = rules
                .flatten()
                .map(|rule| {
                    let text = |field: &str| rule[field][0].as_str().unwrap_or("*").to_owned();
                    [text("verbs"), text("resources"), text("resourceNames")].join(" ")
                })
                .collect();
            rules.join(", ")
        };
        let account = ImpersonatedUser::service_account("apps", "deployer");
        assert_eq!(
            verbs(&account),
            "impersonate:serviceaccount serviceaccounts deployer, \
             impersonate-on:serviceaccount:create selfsubjectreviews *"
        );
        let jane = ImpersonatedUser {
            groups: vec!["g".to_owned()],
            uid: Some("u".to_owned()),
            extra: vec![("Example.com/team".to_owned(), "red".to_owned())],
            ..ImpersonatedUser::named("jane")
        };
        assert_eq!(
            verbs(&jane),
            "impersonate users jane, impersonate groups g, impersonate uids u, \
             impersonate userextras/example.com/team red"
        );
    }

    #[test]
    fn a_refusal_is_shown_in_short() {
        let message = "users \"jane\" is forbidden: User \"hub:a\" cannot impersonate resource \
                       \"users\" in API group \"\" at the cluster scope";
        let expected = "User \"hub:a\" cannot impersonate resource \"users\"";
        assert_eq!(short(message), expected);
        assert_eq!(short("it gives no reason"), "it gives no reason");
    }
}
