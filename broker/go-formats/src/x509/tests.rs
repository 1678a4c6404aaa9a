#![allow(clippy::unwrap_used)]

use super::*;
use crate::base64::decode_standard;
use crate::quote::quote;

/// A certificate, and what each release of Go made of it. `tests/observe.go` says how.
const OBSERVED: &str = include_str!("tests/observed.tsv");

fn rows() -> Vec<(Vec<u8>, Vec<&'static str>)> {
    OBSERVED
        .lines()
        .map(|line| {
            let (der, results) = line.split_once('\t').unwrap();
            let mut last = "";
            let results = results.split('\t').map(|result| {
                if !result.is_empty() {
                    last = result;
                }
                last
            });
            (decode_standard(der.as_bytes()).unwrap(), results.collect())
        })
        .collect()
}

#[test]
fn every_release_of_go_is_followed_to_the_word() {
    let (mut decided, mut undetermined) = (0, 0);
    for (number, (der, observed)) in rows().into_iter().enumerate() {
        assert_eq!(observed.len(), GoRelease::ALL.len(), "row {number}");
        let results = parse(&der, &GoRelease::ALL);
        for ((go, result), observed) in GoRelease::ALL.iter().zip(results).zip(observed) {
            let row = format!("row {number}, {}: {observed}", go.name());
            match result {
                Ok(_) => assert_eq!("ok", observed, "{row}"),
                Err(Fault::Refused { text, exact: true }) => {
                    assert_eq!(format!("err {}", quote(&text)), observed, "{row}");
                }
                // The reason why an address in brackets is none.
                Err(Fault::Refused { .. }) => assert!(observed.contains("ParseAddr"), "{row}"),
                Err(Fault::Undetermined(_)) => {
                    undetermined += 1;
                    continue;
                }
            }
            decided += 1;
        }
    }
    // Hosts of URIs with brackets inside, which patch releases read differently.
    assert!(
        decided > 850 && undetermined <= 8,
        "{decided} {undetermined}"
    );
}

#[test]
fn a_cut_or_changed_certificate_never_panics() {
    for (der, _) in rows() {
        for length in (0..der.len()).step_by(5) {
            let _ = parse(der.get(..length).unwrap(), &[GoRelease::V1_26]);
        }
        let mut changed = der;
        for at in (0..changed.len()).step_by(41) {
            let before = changed[at];
            for byte in [0, 0x1f, 0x7f, 0x80, 0x84, 0xff] {
                changed[at] = byte;
                let _ = parse(&changed, &[GoRelease::V1_22]);
            }
            changed[at] = before;
        }
    }
}
