//! Which event the words of the command line mean, and which settings apply.

#![allow(clippy::unwrap_used)]

use clap::Parser;
use keyferry_api::foreign_text::ForeignText;
use keyferry_api::name::ObjectName;

use super::*;
use crate::view::ViewCommand;
use crate::{Cli, Command};

fn parsed(line: &str) -> Result<(Event, SceneArgs), String> {
    let words = std::iter::once("keyferry").chain(line.split(' '));
    let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    let Command::View(ViewCommand::Rehearse(args)) = cli.command else {
        return Err("another command".to_owned());
    };
    event_of(args.event).map_err(|error| error.problem)
}

#[test]
fn each_event_has_its_words() {
    let kid = || ForeignText::new("k1");
    for (line, expected) in [
        ("hub-outage", Event::HubOutage { lasts: None }),
        (
            "hub-outage --for 4h",
            Event::HubOutage {
                lasts: Some(Duration::from_secs(14_400)),
            },
        ),
        (
            "key-rotation --publish-first",
            Event::KeyRotation {
                order: RotationOrder::PublishFirst,
            },
        ),
        (
            "key-rotation --sign-at-once",
            Event::KeyRotation {
                order: RotationOrder::SignAtOnce,
            },
        ),
        ("remove-key k1", Event::RemoveKey { kid: kid() }),
        ("revoke k1", Event::RevokeKey { kid: kid() }),
        (
            "revoke -Rk1 --replicas 1",
            Event::RevokeKey {
                kid: ForeignText::new("-Rk1"),
            },
        ),
        ("ca-change discovery", Event::DiscoveryAuthorityChange),
        (
            "ca-change target prod",
            Event::TargetAuthorityChange {
                target: ObjectName::new("prod").unwrap(),
            },
        ),
        (
            "keyferry-outage --for 90s",
            Event::KeyferryOutage {
                lasts: Some(Duration::from_secs(90)),
            },
        ),
    ] {
        let event = parsed(&format!("rehearse {line}")).map(|(event, _)| event);
        assert_eq!(event, Ok(expected), "{line}");
    }
}

#[test]
fn words_that_mean_no_event_are_refused() {
    for line in [
        "key-rotation",
        "key-rotation --publish-first --sign-at-once",
        "remove-key",
        "ca-change",
        "ca-change target",
        "ca-change target Prod",
        "ca-change discovery prod",
        "hub-outage --for 0s",
        "hub-outage --at tomorrow",
        "hub-outage --fetched prod",
    ] {
        assert!(parsed(&format!("rehearse {line}")).is_err(), "{line}");
    }
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let text = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ServerConfiguration\nhubName: hub\n\
                publicURL: https://keyferry.test\nmaxStaleAuthorization: 16s\n\
                discovery: {maxAge: 30s, tls: {secretName: tls}}\napi: {tls: {secretName: tls}}\n";
    std::fs::write(&path, text).unwrap();
    let file = format!("--config {}", path.display());
    let seconds = |line: &str| {
        let (_, scene) = parsed(format!("rehearse hub-outage {line}").trim()).unwrap();
        let parameters = scene.parameters().unwrap();
        (
            parameters.max_age.as_secs(),
            parameters.max_stale_authorization.as_secs(),
        )
    };
    assert_eq!(seconds("--replicas 1"), (60, 300));
    assert_eq!(seconds(&file), (30, 16));
    assert_eq!(
        seconds(&format!("{file} --discovery-max-age 2m")),
        (120, 16)
    );
    assert_eq!(
        seconds(&format!("{file} --max-stale-authorization 1m")),
        (30, 60)
    );
}
