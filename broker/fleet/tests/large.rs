//! Reads and judges a large folder, and measures it in release mode:
//! `cargo test --release -p keyferry-fleet --features generated --test large -- --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs
)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use jiff::Timestamp;
use keyferry_fleet::folder::FolderReader;
use keyferry_fleet::generated;
use keyferry_fleet::judge::judge;

const TARGETS: usize = 300;
const MAX_KIBIBYTES: u64 = 250 * 1024;

/// Without optimisation, the test is about the result alone.
fn accesses() -> usize {
    if cfg!(debug_assertions) { 500 } else { 10_000 }
}

/// Writes the objects as `kubectl get -o yaml` prints them.
fn write_folder(folder: &Path, now: Timestamp) -> u64 {
    std::fs::create_dir(folder.join("hub")).unwrap();
    let path = folder.join("hub/all.yaml");
    let mut file = BufWriter::new(File::create(&path).unwrap());
    write!(file, "apiVersion: v1\nitems:").unwrap();
    for object in generated::objects(TARGETS, accesses(), 7, now) {
        let text = serde_saphyr::to_string(&object).unwrap();
        let item = text.trim_end().replace('\n', "\n  ");
        write!(file, "\n- {item}").unwrap();
    }
    writeln!(file, "\nkind: List").unwrap();
    file.flush().unwrap();
    std::fs::metadata(path).unwrap().len()
}

/// The most memory that the process has had since the last reset.
fn peak_kibibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

#[test]
fn a_large_folder_is_read_in_bounded_time_and_memory() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bytes = write_folder(folder.path(), now);
    // Resets the peak (proc(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let begun = Instant::now();
    let mut reader = FolderReader::new("large");
    assert_eq!(reader.accept_file("hub/all.yaml", bytes), Ok(true));
    let text = std::fs::read(folder.path().join("hub/all.yaml")).unwrap();
    reader.add_file("hub/all.yaml", &text);
    drop(text);
    let reading = reader.finish(now).unwrap();
    let read_in = begun.elapsed();
    let fleet = judge(&reading.snapshot, now);
    let took = begun.elapsed();
    let peak = peak_kibibytes();
    println!(
        "{} targets, {} accesses, {} namespaces, {} MiB: read in {read_in:?}, judged in {:?}, peak {} MiB",
        fleet.targets.len(),
        fleet.accesses.len(),
        fleet.tenants.len(),
        bytes >> 20,
        took - read_in,
        peak >> 10
    );
    assert_eq!(
        (fleet.targets.len(), fleet.accesses.len()),
        (TARGETS, accesses())
    );
    assert!(
        fleet.gaps.iter().all(|gap| !gap.is_of_objects()),
        "{:?}",
        fleet.gaps
    );
    assert!(reading.warnings.is_empty(), "{:?}", reading.warnings);
    if !cfg!(debug_assertions) {
        assert!(peak <= MAX_KIBIBYTES, "{peak} KiB");
    }
}
