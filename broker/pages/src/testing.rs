//! Made-up fleets for tests: always the same ones.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use jiff::{SignedDuration, Timestamp};
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::{AccessName, Namespace, ObjectName};
use keyferry_fleet::facts::{
    AcceptedFacts, AccessFacts, AllowFacts, Answer, AuthorityFacts, Comparison, DeliveryFacts,
    Denial, DenialFacts, DenialGroup, Ending, EndingKind, Finding, Fleet, Health, KeyFacts,
    KeyLife, KeyState, Reading, SCHEMA, Source, TargetFacts, TenantFacts, TrustFacts,
};
use keyferry_fleet::gap::{Gap, GapCause};
use keyferry_reach::answer::{Answer as ReachAnswer, Question, Verdict, Way, answer_question};
use keyferry_reach::report::Report;
use keyferry_reach::way::Hop;
use keyferry_reach::world::World;
use keyferry_reach::{Doubt, Subject};

/// The moment of all judgements in these fleets.
pub fn judged_at() -> Timestamp {
    "2026-03-04T09:46:00Z".parse().unwrap()
}

fn after(minutes: i64) -> Timestamp {
    judged_at() + SignedDuration::from_mins(minutes)
}

fn object(name: &str) -> ObjectName {
    ObjectName::new(name).unwrap()
}

fn text(text: &str) -> ForeignText {
    ForeignText::new(text)
}

/// A fleet without anything, which was read completely.
pub fn empty_fleet() -> Fleet {
    Fleet {
        schema: SCHEMA,
        reading: Reading {
            source: Source::Hub {
                server: text("https://hub.example.com:6443"),
            },
            user: Some(text("alice@example.com")),
            read_at: after(-1),
            judged_at: judged_at(),
            tenant: None,
            redacted: false,
            failed: None,
        },
        gaps: Vec::new(),
        runway: None,
        targets: Vec::new(),
        tenants: Vec::new(),
        accesses: Vec::new(),
        keys: KeyFacts {
            journal_read: true,
            ..KeyFacts::default()
        },
        endings: Vec::new(),
        denials: DenialFacts::default(),
    }
}

/// A list of the hub that this user may not read.
pub fn refused_list(resource: &str, hides: &str) -> Gap {
    Gap {
        resource: resource.to_owned(),
        namespace: None,
        target: None,
        cause: GapCause::Refused,
        message: text("alice@example.com cannot list it at the cluster scope"),
        hides: hides.to_owned(),
        fix: "bind the ClusterRole keyferry-view to alice@example.com".to_owned(),
    }
}

/// A target that works, with nothing to add.
pub fn ready_target(name: &str) -> TargetFacts {
    TargetFacts {
        name: object(name),
        health: Health::Ready,
        relying_party: false,
        hub: false,
        suspended: false,
        role: None,
        address: Some(text(&format!("https://{name}.example.com:6443"))),
        audience: Some(text(&format!("https://{name}.example.com"))),
        issuer: Some(text("https://hub.example.com")),
        reachable: Answer::Yes,
        certificate_authority: AuthorityFacts {
            source: text(&format!("Secret {name}-ca")),
            ends: Some(after(60 * 24 * 214)),
        },
        file_active: Answer::Yes,
        keys_read: Answer::Yes,
        accepted: AcceptedFacts {
            accepted: 2,
            refused: 0,
            unanswered: 0,
            asked: 2,
            asked_at: Some(after(-3)),
        },
        accesses: 0,
        tenants: 0,
        next_ending: None,
        cause: ForeignText::default(),
        reason: None,
        next_command: None,
        findings: Vec::new(),
        allow: vec![AllowFacts {
            namespaces: text("tenant-a, tenant-b"),
            service_accounts: vec![text("reconciler"), text("ci")],
            deliveries: vec![text("HTTP"), text("FluxConfigMap")],
        }],
        trust: None,
    }
}

/// An access that works, with a token that ends after so many minutes.
pub fn ready_access(name: &str, target: &str, account: &str, minutes: i64) -> AccessFacts {
    let ends = after(minutes);
    AccessFacts {
        name: AccessName::parse(name).unwrap(),
        health: Health::Ready,
        target: object(target),
        service_account: object(account),
        callers: Vec::new(),
        suspended: false,
        deliveries: vec![DeliveryFacts {
            delivery_type: text("FluxConfigMap"),
            object: Some(text(&format!("{target}-kubeconfig"))),
            reason: Some(text("Delivered")),
            expires_at: Some(ends),
            renew_at: Some(after(minutes / 2)),
            key_id: Some(text("kRt0lq5pVn2sYwXb8Jd4aGf6hUe1cMi9oZr3TqLxBvE")),
        }],
        user: Some(text(&format!(
            "hub:system:serviceaccount:{}:{account}",
            name.split('/').next().unwrap()
        ))),
        accepted: Answer::Yes,
        asked_at: Some(after(-3)),
        exposure_until: Some(ends),
        cause: ForeignText::default(),
        reason: None,
        findings: Vec::new(),
    }
}

/// Five targets, one for each state and one that never was asked, with three tenants, two keys and
/// refusals.
pub fn sample_fleet() -> Fleet {
    let mut fleet = empty_fleet();
    fleet.targets = vec![
        untrusted_target(),
        ending_target(),
        TargetFacts {
            health: Health::Unknown,
            cause: text("never asked: no access of it delivers a token"),
            accepted: AcceptedFacts::default(),
            relying_party: true,
            address: None,
            reachable: Answer::Unknown {
                why: text("it is no Kubernetes cluster"),
            },
            file_active: Answer::Unknown {
                why: text("it is no Kubernetes cluster"),
            },
            keys_read: Answer::Unknown {
                why: text("no request of it was seen"),
            },
            ..ready_target("registry")
        },
        TargetFacts {
            hub: true,
            ..ready_target("hub")
        },
        ready_target("stage"),
    ];
    fleet.accesses = vec![
        ready_access("tenant-a/apps", "prod-eu", "reconciler", 134),
        ready_access("tenant-a/apps-stage", "stage", "reconciler", 131),
        AccessFacts {
            health: Health::Broken,
            accepted: Answer::No {
                reason: text("TargetUntrusted"),
                message: text("Unauthorized"),
            },
            cause: text("the target refused its token"),
            reason: Some(text("TargetUntrusted")),
            callers: vec![text("tenant-a/ci")],
            findings: vec![Finding {
                health: Health::Broken,
                condition: text("Accepted"),
                reason: text("TargetUntrusted"),
                message: text(
                    "prod-us answered 401 Unauthorized to a token for tenant-a/reconciler",
                ),
            }],
            ..ready_access("tenant-a/apps-us", "prod-us", "reconciler", 158)
        },
        AccessFacts {
            suspended: true,
            ..ready_access("tenant-b/deploy", "stage", "ci", 171)
        },
        ready_access("tenant-b/inspect", "hub", "viewer", 190),
    ];
    complete(fleet)
}

fn untrusted_target() -> TargetFacts {
    TargetFacts {
        health: Health::Broken,
        cause: text("it refuses tokens of this issuer"),
        reason: Some(text("TargetUntrusted")),
        next_command: Some("keyferry doctor prod-us --access tenant-a/apps-us".to_owned()),
        file_active: Answer::No {
            reason: text("TargetUntrusted"),
            message: text("it answered 401 Unauthorized to a token that its file would accept"),
        },
        keys_read: Answer::Unknown {
            why: text("no request for the keys was seen in 20 min"),
        },
        accepted: AcceptedFacts {
            accepted: 0,
            refused: 1,
            unanswered: 0,
            asked: 1,
            asked_at: Some(after(-2)),
        },
        findings: vec![Finding {
            health: Health::Broken,
            condition: text("TrustsIssuer"),
            reason: text("TargetUntrusted"),
            message: text(
                "the target refused 1 of 1 tokens; its AuthenticationConfiguration may not be loaded",
            ),
        }],
        trust: Some(TrustFacts {
            file: Comparison::Differs {
                differences: vec![
                    text(
                        "jwt[0].issuer.audiences: has https://prod.example.com, needs https://prod-us.example.com",
                    ),
                    text("jwt[0].claimMappings.username.expression: differs"),
                ],
            },
            loaded_file: Comparison::Matches,
            keys: Comparison::Matches,
            behaviour: Comparison::NotCompared {
                why: "needs --prove".to_owned(),
            },
        }),
        ..ready_target("prod-us")
    }
}

fn ending_target() -> TargetFacts {
    TargetFacts {
        health: Health::Attention,
        cause: text("its CA certificate ends in 9 days"),
        reason: Some(text("CertificateAuthorityExpiring")),
        next_command: Some("keyferry onboard prod-eu --renew-ca".to_owned()),
        certificate_authority: AuthorityFacts {
            source: text("Secret prod-eu-ca"),
            ends: Some(after(60 * 24 * 9)),
        },
        ..ready_target("prod-eu")
    }
}

/// Adds what follows from targets and accesses: counts, tenants, endings, keys and refusals.
fn complete(mut fleet: Fleet) -> Fleet {
    for target in &mut fleet.targets {
        let accesses = || {
            fleet
                .accesses
                .iter()
                .filter(|access| access.target == target.name)
        };
        target.accesses = accesses().count();
        target.next_ending = accesses().filter_map(|access| access.exposure_until).min();
        let mut namespaces: Vec<&Namespace> =
            accesses().map(|access| &access.name.namespace).collect();
        namespaces.sort();
        namespaces.dedup();
        target.tenants = namespaces.len();
    }
    fleet.tenants = tenants(&fleet.accesses);
    fleet.endings = endings(&fleet);
    fleet.runway = fleet
        .endings
        .iter()
        .find(|ending| ending.what == EndingKind::Token)
        .cloned();
    fleet.keys = key_facts();
    fleet.denials = denial_facts();
    fleet
}

fn tenants(accesses: &[AccessFacts]) -> Vec<TenantFacts> {
    let mut tenants: Vec<TenantFacts> = Vec::new();
    for access in accesses {
        let namespace = &access.name.namespace;
        if tenants
            .last()
            .is_none_or(|tenant| tenant.namespace != *namespace)
        {
            tenants.push(TenantFacts {
                namespace: namespace.clone(),
                health: Health::Ready,
                targets: Vec::new(),
                service_accounts: Vec::new(),
                accesses: 0,
                next_ending: None,
            });
        }
        let tenant = tenants.last_mut().unwrap();
        tenant.health = tenant.health.min(access.health);
        tenant.accesses += 1;
        if !tenant.targets.contains(&access.target) {
            tenant.targets.push(access.target.clone());
        }
        if !tenant.service_accounts.contains(&access.service_account) {
            tenant.service_accounts.push(access.service_account.clone());
        }
        let ends = [tenant.next_ending, access.exposure_until];
        tenant.next_ending = ends.into_iter().flatten().min();
    }
    tenants
}

fn endings(fleet: &Fleet) -> Vec<Ending> {
    let tokens = fleet.accesses.iter().filter_map(|access| {
        Some(Ending {
            what: EndingKind::Token,
            place: text(&access.name.to_string()),
            target: Some(access.target.clone()),
            at: access.exposure_until?,
            renew_at: access.deliveries.first()?.renew_at,
        })
    });
    let authorities = fleet.targets.iter().filter_map(|target| {
        Some(Ending {
            what: EndingKind::TargetCertificateAuthority,
            place: text(&target.certificate_authority.source.to_string()),
            target: Some(target.name.clone()),
            at: target.certificate_authority.ends?,
            renew_at: None,
        })
    });
    let mut endings: Vec<Ending> = tokens.chain(authorities).collect();
    endings.push(Ending {
        what: EndingKind::ServingCertificate,
        place: text("discovery listener"),
        target: None,
        at: after(60 * 24 * 41),
        renew_at: Some(after(60 * 24 * 20)),
    });
    endings.sort_by_key(|ending| ending.at);
    endings
}

fn key_facts() -> KeyFacts {
    let old = KeyLife {
        kid: text("Zt7yPq2mWc5nRk8vXb1sJd4gLf6hUe3aMi9oTrQxBvE"),
        algorithm: Some(text("RS256")),
        state: KeyState::Verifies,
        published_at: Some(after(-60 * 60)),
        active_at: Some(after(-60 * 58)),
        signs_since: Some(after(-60 * 57)),
        signs_until: Some(after(-60 * 13)),
        withdrawn_at: None,
        revoked_at: None,
        safe_to_remove_at: Some(after(60 * 11)),
        live_tokens: Some(1),
        last_token_ends: Some(after(60 * 10)),
    };
    let new = KeyLife {
        kid: text("kRt0lq5pVn2sYwXb8Jd4aGf6hUe1cMi9oZr3TqLxBvE"),
        state: KeyState::Signs,
        published_at: Some(after(-60 * 17)),
        active_at: Some(after(-60 * 15)),
        signs_since: Some(after(-60 * 13)),
        signs_until: Some(after(-2)),
        safe_to_remove_at: None,
        live_tokens: Some(4),
        last_token_ends: Some(after(190)),
        ..old.clone()
    };
    KeyFacts {
        issuer: Some(text("https://hub.example.com")),
        journal_read: true,
        keys: vec![new, old],
    }
}

fn denial_facts() -> DenialFacts {
    let group = |reason: &str, namespace: &str, minutes: &[(u8, usize)]| DenialGroup {
        reason: text(reason),
        namespace: text(namespace),
        count: minutes.iter().map(|(_, count)| count).sum(),
        by_minute: minutes.iter().copied().collect(),
    };
    let denial = |minutes: i64, caller: &str| Denial {
        at: after(minutes),
        caller: Some(text(caller)),
        access: Some(text("tenant-b/prod")),
        target: Some(text("prod-eu")),
        reason: text("TargetNotGranted"),
        cause: "No rule of the target's allow names this account.".to_owned(),
        fix: "add a rule to spec.allow of the TargetCluster, or remove the TargetAccess".to_owned(),
    };
    DenialFacts {
        source: Some("the Pods of Keyferry".to_owned()),
        lines: 4812,
        since: Some(after(-60 * 7)),
        groups: vec![
            group(
                "TargetNotGranted",
                "tenant-b",
                &[
                    (12, 9),
                    (13, 31),
                    (14, 44),
                    (15, 40),
                    (16, 22),
                    (17, 4),
                    (41, 12),
                    (42, 41),
                ],
            ),
            group(
                "CallerTokenExpired",
                "tenant-a",
                &[(3, 1), (27, 2), (55, 4)],
            ),
            group("CallerUnknown", "", &[(59, 4)]),
        ],
        newest: vec![
            denial(-1, "tenant-b/default"),
            denial(-2, "tenant-b/default"),
            Denial {
                caller: None,
                access: None,
                target: None,
                reason: text("CallerUnknown"),
                cause: "The token names no ServiceAccount of this hub.".to_owned(),
                fix: "request a token of the hub with Keyferry's audience".to_owned(),
                ..denial(-5, "")
            },
        ],
    }
}

/// A generated fleet of any size: 3 in 100 targets are broken, 6 need attention.
pub fn large_fleet(targets: usize, tenants: usize, accesses: usize) -> Fleet {
    let mut fleet = empty_fleet();
    fleet.reading.source = Source::Generated { seed: 7 };
    fleet.targets = (0..targets).map(numbered_target).collect();
    fleet.targets.sort_by_key(|target| target.health);
    fleet.accesses = (0..accesses)
        .map(|index| {
            let tenant = index * tenants / accesses.max(1);
            let target = (index * 7919) % targets;
            let name = format!("tenant-{tenant:03}/app-{index:05}");
            let account = ["reconciler", "ci", "deployer"][index % 3];
            let minutes = 40 + i64::try_from(index * 613 % 1300).unwrap();
            ready_access(&name, &format!("prod-{target:03}"), account, minutes)
        })
        .collect();
    complete(fleet)
}

fn numbered_target(index: usize) -> TargetFacts {
    let name = format!("prod-{index:03}");
    let template = match index % 33 {
        7 => untrusted_target(),
        12 | 25 => ending_target(),
        _ => ready_target(&name),
    };
    TargetFacts {
        name: object(&name),
        address: Some(text(&format!("https://{name}.example.com:6443"))),
        audience: Some(text(&format!("https://{name}.example.com"))),
        ..template
    }
}

/// A report about reach with each kind of answer, in which every text of others is this one.
pub fn sample_reach(text: &str) -> Report {
    let question = Question {
        request: None,
        targets: Default::default(),
        subject: None,
        is_thorough: true,
        now: judged_at(),
    };
    let world = World::new(Namespace::new("keyferry-system").unwrap());
    let mut answers = answer_question(&world, &question);
    let hop = |door| Hop {
        door,
        text: text.to_owned(),
        removal: None,
    };
    let way = Way {
        hub: vec![hop(Some(1)), hop(Some(3))],
        user: text.to_owned(),
        target: vec![hop(None)],
    };
    let doubt = Doubt::Fact {
        description: text.to_owned(),
        decide: text.to_owned(),
    };
    for verdict in [
        Verdict::Yes {
            ways: vec![way],
            has_more: false,
        },
        Verdict::No {
            nearest_miss: Some(text.to_owned()),
        },
        Verdict::Undetermined {
            doubts: [doubt].into(),
        },
    ] {
        answers.answers.push(ReachAnswer {
            subject: Subject::User(text.to_owned()),
            target: object("prod"),
            verdict,
            cut: None,
        });
    }
    let mut report = Report::of(&question, &answers);
    report.disagreements = vec![ForeignText::new(text)];
    report
}
