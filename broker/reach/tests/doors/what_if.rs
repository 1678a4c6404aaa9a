//! Changes, each predicted and compared with a world that was built with the change in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keyferry_api::name::ObjectName;
use keyferry_reach::answer::{Question, answer_question};
use keyferry_reach::what_if::{Comparison, WayChange, compare_worlds};
use keyferry_reach::world::{ChangedObject, World};
use keyferry_reach::{ListKind, Subject};
use serde_json::{Value, json};

use super::asked::{CORE, ask, rule, with_right, word};
use super::changes::{Row, rows};
use super::snapshot::{Snapshot, documents, now};

fn deleted_object(text: &str, target: Option<&ObjectName>) -> ChangedObject {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (*kind, "", *name),
        [kind, namespace, name] => (*kind, *namespace, *name),
        _ => panic!("{text}"),
    };
    ChangedObject {
        target: target.cloned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// What the change makes of the world, as predicted.
fn predicted(before: &World, row: &Row) -> (World, Vec<ChangedObject>) {
    let target = row.is_at_target.then(|| ObjectName::new("prod").unwrap());
    let (mut world, mut changed) = (before.clone(), Vec::new());
    for text in &row.delete {
        let object = deleted_object(text, target.as_ref());
        assert_eq!(world.delete(&object).unwrap(), None, "{}", row.name);
        changed.push(object);
    }
    for value in documents(&row.apply) {
        let object = ChangedObject::of(&value, target.as_ref()).unwrap();
        assert_eq!(
            world.apply(&object, value, now()).unwrap(),
            None,
            "{}",
            row.name
        );
        changed.push(object);
    }
    let unknown = world.settle(before, &changed);
    assert!(unknown.is_empty(), "{}: {unknown:?}", row.name);
    (world, changed)
}

/// The world with the change, built from all of its objects.
fn built(row: &Row) -> World {
    let mut snapshot = Snapshot::usual();
    for text in row.delete.iter().chain(&row.gone) {
        let gone = deleted_object(text, None);
        let objects = match row.is_at_target {
            true => &mut snapshot.target,
            false => &mut snapshot.hub,
        };
        objects.retain(|object| ChangedObject::of(object, None).ok().as_ref() != Some(&gone));
    }
    for mut value in documents(&row.apply)
        .into_iter()
        .chain(documents(&row.followed))
    {
        if value["kind"] == "AuthenticationConfiguration" {
            snapshot.authentication.clone_from(&row.apply);
            continue;
        }
        if value["kind"].as_str().unwrap().starts_with("Target") {
            for (field, text) in [
                ("uid", "u"),
                ("resourceVersion", "1"),
                ("creationTimestamp", "2026-05-01T00:00:00Z"),
            ] {
                value["metadata"][field] = json!(text);
            }
            value["status"] = json!({ "issuer": "https://hub.test" });
        }
        let same = |other: &Value| {
            ChangedObject::of(other, None).ok() == ChangedObject::of(&value, None).ok()
        };
        let objects = match row.is_at_target {
            true => &mut snapshot.target,
            false => &mut snapshot.hub,
        };
        objects.retain(|other| !same(other));
        objects.push(value);
    }
    snapshot.to_world()
}

type Words = BTreeMap<Subject, &'static str>;

fn words(world: &World) -> Words {
    let answers = ask(world, None).answers.into_iter();
    answers
        .map(|answer| (answer.subject, word(&answer.verdict)))
        .collect()
}

/// Whether each subject can be anybody at the target.
fn arrivals(world: &World) -> Words {
    let question = Question {
        request: None,
        targets: BTreeSet::new(),
        subject: None,
        is_thorough: true,
        now: now(),
    };
    let answers = answer_question(world, &question).answers.into_iter();
    answers
        .map(|answer| (answer.subject, word(&answer.verdict)))
        .collect()
}

fn line(way: &WayChange) -> String {
    let is_certain = if way.is_certain { "" } else { "perhaps " };
    let change = if way.appears { "+" } else { "-" };
    let users: Vec<&str> = way.users.iter().map(String::as_str).collect();
    let rights: Vec<&str> = way.rights.iter().map(String::as_str).collect();
    let object = way
        .object
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    format!(
        "  {is_certain}{change} {} [{}] {}: {} {} ({object})",
        way.subject,
        way.door.map_or("any".to_owned(), |door| door.to_string()),
        way.target.as_ref().map_or("any", ObjectName::as_str),
        users.join(", "),
        rights.join("; "),
    )
}

/// The same without the objects that are named, which only the change itself has.
fn comparable(comparison: Comparison) -> (Vec<WayChange>, Vec<String>) {
    let ways = comparison.ways.into_iter().map(|way| WayChange {
        object: None,
        ..way
    });
    let broken = comparison.broken.iter().map(|it| format!("{it:?}"));
    (ways.collect(), broken.collect())
}

#[test]
fn a_predicted_change_is_the_world_with_the_change_in_it() {
    let before = Snapshot::usual().to_world();
    let (old_words, old_arrivals) = (words(&before), arrivals(&before));
    let mut lines = Vec::new();
    let rows = rows();
    assert!(rows.len() >= 60, "{}", rows.len());
    for row in rows {
        let (after, changed) = predicted(&before, &row);
        let scratch = built(&row);
        assert_eq!(words(&after), words(&scratch), "{}", row.name);
        let comparison = compare_worlds(&before, &after, &changed, now());
        let of_scratch = compare_worlds(&before, &scratch, &[], now());
        assert_eq!(
            comparable(comparison.clone()),
            comparable(of_scratch),
            "{}",
            row.name
        );
        check_words(
            &row.name,
            &comparison,
            &old_arrivals,
            &arrivals(&scratch),
            true,
        );
        check_words(&row.name, &comparison, &old_words, &words(&scratch), false);
        lines.push(row.name.clone());
        lines.extend(comparison.ways.iter().map(line));
        lines.extend(
            comparison
                .broken
                .iter()
                .map(|it| format!("  breaks: {it:?}")),
        );
    }
    insta::assert_snapshot!("changes", lines.join("\n"));
}

/// Each answer of who-can that changes is among the changed ways, as certain as it is.
fn check_words(name: &str, comparison: &Comparison, old: &Words, new: &Words, is_arrival: bool) {
    for subject in old.keys().chain(new.keys()) {
        let of = |words: &Words| words.get(subject).copied().unwrap_or("no");
        let has = |appears: bool| {
            let mut ways = comparison.ways.iter();
            ways.any(|way| way.subject == *subject && way.appears == appears && way.is_certain)
        };
        let any = comparison.ways.iter().any(|way| way.subject == *subject);
        match (of(old), of(new)) {
            ("no", "yes") => assert!(has(true), "{name}: {subject} gains"),
            ("yes", "no") => assert!(has(false), "{name}: {subject} loses"),
            (old, new) if old != new => assert!(any, "{name}: {subject}: {old}, {new}"),
            ("no", _) if is_arrival => {
                assert!(!has(true) && !has(false), "{name}: {subject} has no way");
            }
            _ => {}
        }
    }
}

/// A list that one of two folders lacks makes nothing appear or disappear.
#[test]
fn a_gap_in_one_of_two_worlds_is_never_a_change() {
    let rich = Snapshot::usual().and(&with_right(
        "tenant-a",
        &rule(CORE, "pods/exec, secrets", "create, get"),
    ));
    let whole = rich.to_world();
    let mut lines = Vec::new();
    let mut check = |name: String, blind: &World| {
        for (direction, before, after) in [("from", blind, &whole), ("to", &whole, blind)] {
            let comparison = compare_worlds(before, after, &[], now());
            let certain: Vec<String> = comparison
                .ways
                .iter()
                .filter(|it| it.is_certain)
                .map(line)
                .collect();
            assert!(certain.is_empty(), "{name} {direction}: {certain:#?}");
            let broken = comparison.broken.iter().filter(|it| it.is_certain);
            assert_eq!(broken.count(), 0, "{name} {direction}");
            lines.push(format!(
                "{name} not read in --{direction}: {} perhaps",
                comparison.ways.len()
            ));
        }
    };
    for kind in ListKind::ALL {
        check(
            kind.resource().to_owned(),
            &rich.clone().unread(kind).to_world(),
        );
    }
    for kind in ListKind::RBAC {
        let mut blind = rich.clone();
        blind.unread_of_target.insert(kind);
        check(format!("{} of prod", kind.resource()), &blind.to_world());
    }
    let without_file = Snapshot {
        authentication: String::new(),
        ..rich.clone()
    };
    check("authentication.yaml".to_owned(), &without_file.to_world());
    let mut without_target = rich.to_world();
    without_target.targets.clear();
    check("targets".to_owned(), &without_target);
    insta::assert_snapshot!("gaps-of-two-worlds", lines.join("\n"));
}

/// What makes no difference is none: the same objects, and rules written in another way.
#[test]
fn another_spelling_is_no_change() {
    let before = Snapshot::usual().to_world();
    let rewritten = Snapshot::usual()
        .and("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: caller, namespace: tenant-a}\n\
            rules: [{apiGroups: [''], resources: [serviceaccounts/token], verbs: [create], resourceNames: [reconciler, reconciler]}]\n")
        .to_world();
    let mut files = (**before.targets.values().next().unwrap()).clone();
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: edit-2}, rules: \
        [{apiGroups: [apps], resources: [deployments], verbs: [delete]}, {apiGroups: [apps], resources: [deployments], verbs: [get]}]}";
    files.add(documents(role).remove(0)).unwrap();
    let mut split = before.clone();
    split
        .targets
        .insert(ObjectName::new("prod").unwrap(), Arc::new(files));
    for after in [&before, &rewritten, &split] {
        let comparison = compare_worlds(&before, after, &[], now());
        assert_eq!(comparison.ways, [], "no way changes");
        assert_eq!(comparison.broken, [], "no delivery breaks");
    }
}

/// Where nothing is known before, what is perhaps new is still named.
#[test]
fn what_was_not_read_hides_no_new_way() {
    let token = with_right("tenant-a", &rule(CORE, "serviceaccounts/token", "create"));
    let unread_role = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: unread, namespace: tenant-a}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: unread}\nsubjects: [{kind: ServiceAccount, name: ci, namespace: tenant-a}]\n";
    let deployer = with_right("tenant-b", &rule(CORE, "serviceaccounts/token", "create"))
        .replace("given", "more");
    let without_file = Snapshot {
        authentication: String::new(),
        ..Snapshot::usual()
    };
    for (name, before, text, kind) in [
        (
            "another account at a target without its file",
            without_file.and(&token),
            deployer,
            "",
        ),
        (
            "rolebindings",
            Snapshot::usual().unread(ListKind::RoleBindings),
            token.clone(),
            "ServiceAccount tenant-a/ci",
        ),
        (
            "a role that was not read",
            Snapshot::usual().unread(ListKind::Roles),
            unread_role.to_owned(),
            "",
        ),
    ] {
        let before = before.to_world();
        let (mut after, mut changed) = (before.clone(), Vec::new());
        for value in documents(&text) {
            let object = ChangedObject::of(&value, None).unwrap();
            assert_eq!(after.apply(&object, value, now()).unwrap(), None, "{name}");
            changed.push(object);
        }
        let unknown = after.settle(&before, &changed);
        let ways = compare_worlds(&before, &after, &changed, now()).ways;
        let perhaps = ways
            .iter()
            .any(|way| way.appears && !way.is_certain && way.subject.to_string().contains(kind));
        assert!(
            perhaps || !unknown.is_empty(),
            "{name}: {:#?}",
            ways.iter().map(line).collect::<Vec<_>>()
        );
    }
}
