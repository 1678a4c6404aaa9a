//! Lists taken away, and cuts removed.

use std::collections::{BTreeMap, BTreeSet};

use keyferry_reach::answer::Verdict;
use keyferry_reach::way::Removal;
use keyferry_reach::world::World;
use keyferry_reach::{ListKind, Subject};

use super::asked::{CORE, ask, rule, with_right, word};
use super::snapshot::Snapshot;

/// A list that was not read turns no yes into a no, and no no into a yes: the answer of everyone, for
/// each list in turn, from a world with all kinds of rights.
#[test]
fn a_list_that_was_not_read_turns_no_answer_into_its_opposite() {
    let rights = [
        with_right("tenant-a", &rule(CORE, "pods/exec, secrets", "create, get")),
        with_right("tenant-c", &rule(CORE, "pods", "create")).replace("given", "runner"),
        with_right("tenant-b", &rule(CORE, "secrets", "list"))
            .replace("name: ci", "name: web")
            .replace("given", "reader"),
        // Doors 9, 10 and 12.
        with_right(
            "",
            "{apiGroups: [keyferry.dev], resources: [targetclusters, targetaccesses], verbs: [create, patch]}, \
             {apiGroups: [admissionregistration.k8s.io], resources: ['*'], verbs: [delete]}, \
             {apiGroups: [''], resources: [serviceaccounts/token], verbs: [create], resourceNames: [web, idle]}",
        )
        .replace("name: ci, namespace: tenant-a", "name: idle, namespace: tenant-d")
        .replace("given", "actor"),
        with_right("", "{apiGroups: [certificates.k8s.io], resources: ['*'], verbs: [create, update, approve]}")
            .replace("name: ci", "name: stranger")
            .replace("given", "approver"),
    ];
    let rich = Snapshot::usual().and(&rights.concat());
    let whole = words_of_all(&rich.to_world());
    let decided = whole
        .values()
        .filter(|word| **word != "undetermined")
        .count();
    assert!(
        decided * 10 >= whole.len() * 9,
        "most are decided: {whole:?}"
    );
    let mut lines = Vec::new();
    for kind in ListKind::ALL {
        let blind = rich.clone().unread(kind).to_world();
        assert_gaps_are_named(&whole, &blind, kind);
        let blind = words_of_all(&blind);
        lines.push(format!("{}: {}", kind.resource(), compare(&whole, &blind)));
    }
    for kind in ListKind::RBAC {
        let mut blind = rich.clone();
        blind.unread_of_target.insert(kind);
        let blind = words_of_all(&blind.to_world());
        lines.push(format!(
            "{} of the target: {}",
            kind.resource(),
            compare(&whole, &blind)
        ));
    }
    insta::assert_snapshot!("lists-taken-away", lines.join("\n"));
}

/// Whoever became undetermined is told of the list that was taken away.
fn assert_gaps_are_named(whole: &Words, blind: &World, kind: ListKind) {
    for answer in ask(blind, None).answers {
        let was = whole.get(&answer.subject).copied();
        if let (Verdict::Undetermined { doubts }, Some("yes" | "no")) = (&answer.verdict, was) {
            let texts: Vec<String> = doubts.iter().map(keyferry_reach::Doubt::decide).collect();
            let is_named = texts.iter().any(|text| text.contains(kind.resource()));
            assert!(is_named, "{}: {kind:?}: {texts:?}", answer.subject);
        }
    }
}

type Words = BTreeMap<Subject, &'static str>;

fn words_of_all(world: &World) -> Words {
    let answers = ask(world, None).answers.into_iter();
    answers
        .map(|answer| (answer.subject, word(&answer.verdict)))
        .collect()
}

/// How many answers became undetermined; fails if one became its opposite, or appeared.
fn compare(whole: &Words, blind: &Words) -> String {
    for (subject, word) in blind {
        // An account that was only named has no way if it exists, or does not exist.
        let before = whole.get(subject).copied().unwrap_or("no");
        assert!(
            *word == before || *word == "undetermined",
            "{subject}: {before}, then {word}"
        );
    }
    let undetermined = |words: &Words| {
        words
            .values()
            .filter(|word| **word == "undetermined")
            .count()
    };
    format!(
        "{} of {} subjects known, {} undetermined instead of {}",
        blind.len(),
        whole.len(),
        undetermined(blind),
        undetermined(whole)
    )
}

/// Whatever a cut names is enough, and no part of it is.
#[test]
fn every_cut_closes_every_way_and_no_part_of_it_does() {
    let rights = [
        with_right("tenant-a", &rule(CORE, "serviceaccounts/token", "create")),
        with_right("tenant-b", &rule(CORE, "pods", "create")).replace("given", "runner"),
    ];
    let world = Snapshot::usual().and(&rights.concat()).to_world();
    let answers = ask(&world, None);
    let mut lines = Vec::new();
    for answer in &answers.answers {
        let Verdict::Yes { .. } = answer.verdict else {
            assert_eq!(answer.cut, None);
            continue;
        };
        let Some(cut) = &answer.cut else {
            lines.push(format!("{}: no cut", answer.subject));
            continue;
        };
        let names: Vec<String> = cut.iter().map(ToString::to_string).collect();
        lines.push(format!("{}: {}", answer.subject, names.join(", ")));
        let name = match &answer.subject {
            Subject::ServiceAccount(..) => answer.subject.name(),
            other => format!("{}:{}", other.kind().to_lowercase(), other.name()),
        };
        let without = |removals: &BTreeSet<Removal>| {
            word(
                &ask(&world.without(removals), Some(&name))
                    .answers
                    .first()
                    .unwrap()
                    .verdict,
            )
        };
        assert_eq!(without(cut), "no", "{name}: {cut:?}");
        for kept in cut {
            let part = cut
                .iter()
                .filter(|removal| *removal != kept)
                .cloned()
                .collect();
            assert_eq!(without(&part), "yes", "{name}: {part:?}");
        }
    }
    let all: Vec<String> = answers
        .cut
        .iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    lines.push(format!("all: {}", all.join(", ")));
    insta::assert_snapshot!("cuts", lines.join("\n"));
}
