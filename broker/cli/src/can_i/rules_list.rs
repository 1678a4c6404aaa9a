//! `keyferry can-i --list`: the rules of the user at the target.

use std::collections::BTreeMap;
use std::process::ExitCode;

use keyferry_api::foreign_text;
use keyferry_client::doctor::identity::calls;
use keyferry_client::doctor::rules::{PathRule, ResourceRule, UserRules};
use keyferry_client::doctor::target_calls::AccessError;
use serde_json::{Value, json};

use super::{CanIArgs, DENIED, UNDETERMINED, not_as, user};
use crate::command_error::CommandError;
use crate::ui;

/// The most rows of the table. A target decides how many rules it lists, and a row is made for each
/// group with each resource of a rule: an answer of a megabyte could name 10^10 of them.
const MAX_ROWS: usize = 5_000;
/// The most groups with a resource, and paths, that are read. Several may have one row.
const MAX_READ: usize = 50_000;
/// The most characters of a cell.
const MAX_CELL_CHARS: usize = 2_000;
/// The most verbs of a row.
const MAX_VERBS: usize = 100;

/// Prints the user's rules in one namespace, with those in the whole cluster.
pub(super) async fn list(args: &CanIArgs) -> Result<ExitCode, CommandError> {
    let plan = args
        .target
        .plan(
            args.from.as_ref(),
            args.namespace.as_deref(),
            args.objects.as_deref(),
        )
        .await?;
    let calls = calls(&plan).await?;
    let user = user(&calls, &plan).await?;
    let namespace = args.target_namespace.as_deref().unwrap_or("default");
    let target = plan.target_in_words();
    let rules = calls.rules(namespace, plan.impersonate.as_ref()).await;
    let (code, gap) = match &rules {
        Ok(rules) => match rules.gap() {
            None => (ExitCode::SUCCESS, None),
            Some(why) => (ExitCode::from(UNDETERMINED), Some(why.to_owned())),
        },
        Err(AccessError::Impersonation(why)) => (
            ExitCode::FAILURE,
            Some(not_as(&user, &target, &why.to_string())),
        ),
        Err(AccessError::Unknown(why)) => (ExitCode::from(UNDETERMINED), Some(why.clone())),
    };
    let is_denied = matches!(rules, Err(AccessError::Impersonation(_)));
    let rules = rules.unwrap_or_default();
    if let Some(format) = args.format.output.document() {
        let document = json!({
            "schema": "keyferry.dev/can-i-list/v1", "user": user, "target": target,
            "namespace": namespace, "incomplete": gap.is_some(), "detail": gap,
            "rules": rule_values(&rules), "paths": path_values(&rules),
            "reason": is_denied.then(|| DENIED.name()), "fix": is_denied.then(|| DENIED.fix()),
        });
        return Ok(ui::finish_document(&document, format, code));
    }
    let table = RulesTable::of(&rules);
    let code = if table.is_cut && gap.is_none() {
        ExitCode::from(UNDETERMINED)
    } else {
        code
    };
    match &gap {
        Some(why) if is_denied => {
            ui::note(why);
            ui::note(DENIED.name());
            ui::note(&format!("fix: {}", DENIED.fix()));
            return Ok(code);
        }
        Some(why) => ui::note(&format!("undetermined: the list is not complete: {why}")),
        None => {}
    }
    if table.is_cut {
        ui::note(
            "undetermined: the list is cut, because the target's is too long: -o json has all of \
             it",
        );
    }
    ui::note(&format!(
        "{user} in {namespace}, and in the whole cluster, at {target}:"
    ));
    Ok(match ui::result(&ui::table(&table.rows)) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    })
}

fn rule_values(rules: &UserRules) -> Vec<Value> {
    let value = |rule: &ResourceRule| {
        json!({
            "groups": rule.groups, "resources": rule.resources, "names": rule.names,
            "verbs": rule.verbs,
        })
    };
    rules.resources.iter().map(value).collect()
}

fn path_values(rules: &UserRules) -> Vec<Value> {
    let value = |rule: &PathRule| json!({ "paths": rule.paths, "verbs": rule.verbs });
    rules.paths.iter().map(value).collect()
}

/// The table of a user's rules: one row for each resource or path, with the verbs of all rules that
/// name it.
struct RulesTable {
    rows: Vec<Vec<String>>,
    /// Whether it lacks some of the rules.
    is_cut: bool,
}

impl RulesTable {
    fn of(rules: &UserRules) -> Self {
        let mut table = TableBuilder::default();
        for rule in &rules.resources {
            let names = table.joined(&rule.names);
            // Cut before they are joined, because each may be as long as the whole answer.
            let groups: Vec<String> = rule.groups.iter().map(|text| table.cut(text)).collect();
            for resource in &rule.resources {
                let resource = table.cut(resource);
                for group in &groups {
                    if !table.add(&full_name(&resource, group), &names, &rule.verbs) {
                        return table.build();
                    }
                }
            }
        }
        for rule in &rules.paths {
            for path in &rule.paths {
                if !table.add(path, "", &rule.verbs) {
                    return table.build();
                }
            }
        }
        table.build()
    }
}

#[derive(Default)]
struct TableBuilder {
    /// The verbs by the resource or path and the joined names.
    verbs: BTreeMap<(String, String), Vec<String>>,
    read: usize,
    is_cut: bool,
}

impl TableBuilder {
    /// Joins the names of one rule.
    fn joined(&mut self, names: &[String]) -> String {
        let joined = names.join(", ");
        self.cut(&joined)
    }

    fn cut(&mut self, text: &str) -> String {
        let cut = foreign_text::one_line(text, MAX_CELL_CHARS);
        self.is_cut |= text.chars().nth(MAX_CELL_CHARS).is_some();
        cut
    }

    /// Adds verbs to a row. Returns `false` if the table has no place for more.
    fn add(&mut self, what: &str, names: &str, more: &[String]) -> bool {
        let key = (self.cut(what), names.to_owned());
        let is_full = self.verbs.len() == MAX_ROWS && !self.verbs.contains_key(&key);
        if is_full || self.read == MAX_READ {
            self.is_cut = true;
            return false;
        }
        self.read += 1;
        let known = self.verbs.entry(key).or_default();
        self.is_cut |= more.len() > MAX_VERBS;
        for verb in more.iter().take(MAX_VERBS) {
            if known.contains(verb) {
                continue;
            }
            if known.len() == MAX_VERBS {
                self.is_cut = true;
                break;
            }
            known.push(verb.clone());
        }
        true
    }

    fn build(mut self) -> RulesTable {
        let mut rows = vec![["RESOURCE", "NAMES", "VERBS"].map(str::to_owned).to_vec()];
        for ((what, names), verbs) in std::mem::take(&mut self.verbs) {
            let names = if names.is_empty() {
                "-".to_owned()
            } else {
                names
            };
            let verbs = self.joined(&verbs);
            rows.push(vec![what, names, verbs]);
        }
        let is_cut = self.is_cut;
        RulesTable { rows, is_cut }
    }
}

/// Writes a resource with its group, as kubectl does: `deployments.apps/scale`.
fn full_name(resource: &str, group: &str) -> String {
    match (group, resource.split_once('/')) {
        ("", _) => resource.to_owned(),
        (group, None) => format!("{resource}.{group}"),
        (group, Some((resource, subresource))) => format!("{resource}.{group}/{subresource}"),
    }
}

#[cfg(test)]
mod tests {
    use keyferry_client::doctor::rules::{PathRule, ResourceRule, UserRules};

    use super::{MAX_READ, MAX_ROWS, RulesTable};

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|&one| one.to_owned()).collect()
    }

    fn rule(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> ResourceRule {
        ResourceRule {
            groups: texts(&[group]),
            resources: texts(resources),
            names: texts(names),
            verbs: texts(verbs),
        }
    }

    #[test]
    fn each_resource_has_one_row_with_all_its_verbs() {
        let rules = UserRules {
            resources: vec![
                rule("", &["pods", "secrets"], &[], &["get"]),
                rule(
                    "apps",
                    &["deployments", "deployments/scale"],
                    &[],
                    &["patch"],
                ),
                rule("", &["pods"], &[], &["list", "get"]),
                rule("", &["secrets"], &["a", "b"], &["delete"]),
            ],
            paths: vec![PathRule {
                paths: texts(&["/livez"]),
                verbs: texts(&["get"]),
            }],
            ..UserRules::default()
        };
        let table = RulesTable::of(&rules);
        assert!(!table.is_cut);
        let shown: Vec<String> = table.rows.iter().map(|row| row.join("|")).collect();
        assert_eq!(
            shown,
            [
                "RESOURCE|NAMES|VERBS",
                "/livez|-|get",
                "deployments.apps|-|patch",
                "deployments.apps/scale|-|patch",
                "pods|-|get, list",
                "secrets|-|get",
                "secrets|a, b|delete",
            ]
        );
    }

    /// Without the limits, this test would take hours and all of the memory.
    #[test]
    fn a_hostile_list_is_cut() {
        let many = |prefix: &str| -> Vec<String> {
            (0..100_000)
                .map(|index| format!("{prefix}{index}"))
                .collect()
        };
        let cut = |rule: ResourceRule| {
            let resources = vec![rule];
            let table = RulesTable::of(&UserRules {
                resources,
                ..UserRules::default()
            });
            assert!(table.is_cut);
            table.rows
        };
        let product = ResourceRule {
            groups: many("g"),
            resources: many("r"),
            names: many("n"),
            verbs: texts(&["get"]),
        };
        let rows = cut(product.clone());
        assert_eq!(rows.len(), MAX_ROWS + 1);
        assert!(
            rows.iter()
                .flatten()
                .all(|cell| cell.chars().count() <= 2_003)
        );
        // All have one row.
        let one_row = ResourceRule {
            groups: vec![String::new(); MAX_READ],
            resources: vec!["pods".to_owned(); MAX_READ],
            names: Vec::new(),
            ..product.clone()
        };
        assert_eq!(cut(one_row)[1], ["pods", "-", "get"]);
        let verbs = ResourceRule {
            groups: texts(&[""]),
            resources: texts(&["pods"]),
            names: Vec::new(),
            verbs: many("v"),
        };
        assert_eq!(cut(verbs)[1][2].split(", ").count(), 100);
    }
}
