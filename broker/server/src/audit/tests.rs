//! Tests of a full, a torn, a blocked, a lost, a crowded and a rotated log.

use std::io::Write;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};

use keyferry_api::config::{AuditFile, AuditRotation};
use keyferry_api::reason::Reason;
use keyferry_core::audit::AuditRecord;
use keyferry_core::request_id::RequestId;
use keyferry_platform::audit_sink::{AuditError, AuditSink};

use super::{AuditLog, MAX_QUEUED_LINES, MAX_QUEUED_REFUSALS, WRITE_TIMEOUT};

/// The id of the record that follows a failure.
const NEXT_RECORD_ID: u64 = 7;

struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_full_disk_is_an_error_for_every_waiting_request() {
    assert_eq!(
        AuditLog::to_sink(Full)
            .record(&AuditRecord::default())
            .await,
        Err(AuditError)
    );
}

/// Takes ten bytes, then nothing, then everything.
#[derive(Clone, Default)]
struct Filling(Arc<Mutex<(Vec<u8>, u32)>>);

impl Write for Filling {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        let taken = match state.1 {
            1 => text.len().min(10),
            2 => return Err(std::io::ErrorKind::StorageFull.into()),
            _ => text.len(),
        };
        state.0.extend_from_slice(&text[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_torn_line_swallows_no_record() {
    let disk = Filling::default();
    let log = AuditLog::to_sink(disk.clone());
    assert_eq!(log.record(&AuditRecord::default()).await, Err(AuditError));
    log.record(&AuditRecord {
        request_id: NEXT_RECORD_ID.into(),
        ..AuditRecord::default()
    })
    .await
    .unwrap();
    let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        last["requestId"],
        RequestId::from(NEXT_RECORD_ID).to_string(),
        "{text}"
    );
}

/// Panics once it is written to.
struct Broken;

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        panic!("on purpose")
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_log_that_is_gone() {
    let log = AuditLog::to_sink(Broken);
    assert_eq!(log.record(&AuditRecord::default()).await, Err(AuditError));
    assert_eq!(
        log.record(&AuditRecord::default()).await,
        Err(AuditError),
        "and nobody waits for it later"
    );
}

/// Blocks until it is released.
struct Stuck(std::sync::mpsc::Receiver<()>, Filling);

impl Write for Stuck {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        self.1.0.lock().unwrap().0.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_log_that_stands_still_is_an_error_in_time_and_its_lines_come_later() {
    let (go, stuck) = std::sync::mpsc::channel();
    let disk = Filling::default();
    let log = Arc::new(AuditLog::to_sink(Stuck(stuck, disk.clone())));
    let named = |id: u64| AuditRecord {
        request_id: id.into(),
        ..AuditRecord::default()
    };
    let (first, second) = (named(1), named(2));
    let later = async {
        tokio::time::sleep(WRITE_TIMEOUT / 2).await;
        log.record(&second).await
    };
    let both = tokio::time::timeout(WRITE_TIMEOUT * 2, async {
        tokio::join!(log.record(&first), later)
    })
    .await;
    assert_eq!(
        both.unwrap(),
        (Err(AuditError), Err(AuditError)),
        "every waiting request gets the error in time, the last one too"
    );
    drop(go);
    assert_eq!(log.record(&named(3)).await, Ok(()));
    let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
    let ids: Vec<String> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["requestId"].to_string()
        })
        .collect();
    assert_eq!(
        ids,
        [1, 2, 3].map(|id| format!("\"{}\"", RequestId::from(id))),
        "nothing is lost and nothing is mixed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_have_a_line_each() {
    let disk = Filling(Arc::new(Mutex::new((Vec::new(), 2))));
    let log = Arc::new(AuditLog::to_sink(disk.clone()));
    let record = |id: u64| {
        let log = Arc::clone(&log);
        async move {
            log.record(&AuditRecord {
                request_id: id.into(),
                ..AuditRecord::default()
            })
            .await
        }
    };
    let tasks: Vec<_> = (0..10_000).map(|id| tokio::spawn(record(id))).collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let state = disk.0.lock().unwrap();
    let text = String::from_utf8(state.0.clone()).unwrap();
    let ids: std::collections::BTreeSet<String> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["requestId"].to_string()
        })
        .collect();
    assert_eq!((text.lines().count(), ids.len()), (10_000, 10_000));
    assert!(state.1 < 10_002, "some lines shared a write");
}

/// With more refusals than the queue has room for, while the log is blocked, an
/// issuance still gets its line and every refusal is counted.
#[tokio::test]
async fn refusals_take_no_room_from_issuances() {
    let (go, stuck) = std::sync::mpsc::channel();
    let disk = Filling::default();
    let log = AuditLog::to_sink(Stuck(stuck, disk.clone()));
    let refused = |reason| {
        let mut record = AuditRecord {
            route: "exchange",
            ..AuditRecord::default()
        };
        record.set_decision("denied", reason);
        log.record(&record)
    };
    let granted = |id: u64| {
        let mut record = AuditRecord {
            request_id: id.into(),
            ..AuditRecord::default()
        };
        record.set_decision("granted", Reason::Ready);
        log.record(&record)
    };
    let mut refusals: Vec<_> = (0..MAX_QUEUED_LINES)
        .map(|_| refused(Reason::CallerMalformed))
        .collect();
    refusals.extend((0..MAX_QUEUED_LINES).map(|_| refused(Reason::RequestInvalid)));
    let issuances: Vec<_> = (0..MAX_QUEUED_LINES as u64 - MAX_QUEUED_REFUSALS as u64)
        .map(granted)
        .collect();
    drop(go);
    for (id, issue) in issuances.into_iter().enumerate() {
        assert_eq!(issue.await, Ok(()), "issuance {id}");
    }
    drop(refusals);
    let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let summaries: Vec<_> = lines
        .iter()
        .filter(|line| line["route"] == "summary")
        .collect();
    let counted: u64 = summaries
        .iter()
        .map(|line| line["count"].as_u64().unwrap())
        .sum();
    let alone = lines
        .iter()
        .filter(|line| line["decision"] == "denied" && line["route"] != "summary")
        .count();
    assert_eq!(
        (alone, counted as usize),
        (
            MAX_QUEUED_REFUSALS,
            2 * MAX_QUEUED_LINES - MAX_QUEUED_REFUSALS
        )
    );
    let reasons: Vec<_> = summaries
        .iter()
        .map(|line| line["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        ["CallerMalformed", "RequestInvalid"],
        "{summaries:?}"
    );
}

fn file_at(path: &Path) -> AuditFile {
    AuditFile {
        path: path.to_owned(),
        rotation: None,
    }
}

/// A log with two backups, each for about five records.
fn rotated(path: &Path) -> AuditLog {
    AuditLog::to_file(&AuditFile {
        path: path.to_owned(),
        rotation: Some(AuditRotation {
            max_size: 1000,
            max_backups: NonZeroU32::new(2).unwrap(),
        }),
    })
    .unwrap()
}

async fn write(log: &AuditLog, ids: std::ops::Range<u64>) -> Result<(), AuditError> {
    for id in ids {
        let record = AuditRecord {
            request_id: id.into(),
            ..AuditRecord::default()
        };
        log.record(&record).await?;
    }
    Ok(())
}

/// A volume with room for the files never fills, and no record is lost but with the oldest file.
#[tokio::test]
async fn a_full_file_is_rotated_and_the_oldest_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = rotated(&path);
    write(&log, 0..200).await.unwrap();
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
    let mut text = String::new();
    for name in names.iter().rev() {
        let part = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(part.len() <= 1000, "{name} has {} bytes", part.len());
        text.push_str(&part);
    }
    let ids: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|record| record["requestId"].as_str().unwrap().to_owned())
        .collect();
    let last = ids.len() as u64;
    let wanted: Vec<String> = (200 - last..200)
        .map(|id| RequestId::from(id).to_string())
        .collect();
    assert_eq!(ids, wanted, "the newest records, in order, each once");
    assert!(last > 10, "{last}");
}

/// A live file that cannot be moved: the backups, which would be overwritten at each try, stay.
#[tokio::test]
async fn a_rotation_moves_the_live_file_first() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("audit.log.1"), "newer").unwrap();
    std::fs::write(at("audit.log.2"), "oldest").unwrap();
    // No file can be renamed to a folder.
    std::fs::create_dir(at("audit.log.0")).unwrap();
    let log = rotated(&at("audit.log"));
    for _ in 0..2 {
        assert_eq!(write(&log, 0..50).await, Err(AuditError));
        let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
        assert_eq!(read("audit.log.1"), "newer");
        assert_eq!(read("audit.log.2"), "oldest");
    }
}

/// A rotation fails between its renames: the full file is `.0` until the next one.
#[tokio::test]
async fn a_rotation_that_failed_halfway_loses_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("audit.log.1"), "newer").unwrap();
    std::fs::create_dir(at("audit.log.2")).unwrap();
    let log = rotated(&at("audit.log"));
    assert_eq!(write(&log, 0..50).await, Err(AuditError));
    let full = std::fs::read_to_string(at("audit.log.0")).unwrap();
    assert_eq!(std::fs::read_to_string(at("audit.log.1")).unwrap(), "newer");
    std::fs::remove_dir(at("audit.log.2")).unwrap();
    let mut id = 100;
    while !at("audit.log.2").exists() {
        write(&log, id..id + 1).await.unwrap();
        id += 1;
        assert!(id < 200, "it rotates again");
    }
    assert!(!at("audit.log.0").exists());
    assert_eq!(std::fs::read_to_string(at("audit.log.2")).unwrap(), full);
}

#[tokio::test]
async fn a_rotated_file_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = AuditLog::to_file(&file_at(&path)).unwrap();
    log.record(&AuditRecord::default()).await.unwrap();
    std::fs::rename(&path, folder.path().join("audit.log.1")).unwrap();
    log.record(&AuditRecord {
        request_id: NEXT_RECORD_ID.into(),
        ..AuditRecord::default()
    })
    .await
    .unwrap();
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .contains(&RequestId::from(NEXT_RECORD_ID).to_string())
    );
    std::fs::remove_file(&path).unwrap();
    log.record(&AuditRecord::default()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
}

/// The disk was full, or the process was killed, within a line. The next process starts another.
#[tokio::test]
async fn a_line_that_an_earlier_process_tore_swallows_no_record() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (before, lines)) in [("", 1), ("{}\n", 2), ("{}\n{\"torn", 3)]
        .iter()
        .enumerate()
    {
        let path = folder.path().join(number.to_string());
        std::fs::write(&path, before).unwrap();
        let log = AuditLog::to_file(&file_at(&path)).unwrap();
        write(&log, NEXT_RECORD_ID..NEXT_RECORD_ID + 1)
            .await
            .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let record: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(
            record["requestId"],
            RequestId::from(NEXT_RECORD_ID).to_string()
        );
        assert_eq!(text.lines().count(), *lines, "{text}");
    }
}

/// A tool renames the file again and again while records are written: each is in one file, whole, and
/// once. No signal says that the file was renamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_others_rotate_loses_no_record() {
    const ROTATIONS: usize = 50;
    const RECORDS: u64 = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = AuditLog::to_file(&file_at(&path)).unwrap();
    let rotating = std::thread::spawn({
        let path = path.clone();
        move || {
            for number in 0..ROTATIONS {
                while std::fs::metadata(&path).map_or(0, |file| file.len()) == 0 {
                    std::thread::yield_now();
                }
                std::fs::rename(&path, path.with_extension(number.to_string())).unwrap();
            }
        }
    });
    let mut id = 0;
    while id < RECORDS || !rotating.is_finished() {
        write(&log, id..id + 1).await.unwrap();
        id += 1;
    }
    rotating.join().unwrap();
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        for line in std::fs::read_to_string(entry.unwrap().path())
            .unwrap()
            .lines()
        {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            ids.push(record["requestId"].as_str().unwrap().to_owned());
        }
    }
    ids.sort();
    let wanted: Vec<String> = (0..id).map(|id| RequestId::from(id).to_string()).collect();
    assert_eq!(ids, wanted);
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(files >= ROTATIONS, "{files} files");
}

#[tokio::test]
async fn a_record_is_in_the_file_when_its_writer_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let log = AuditLog::to_file(&file_at(&path)).unwrap();
    let record = AuditRecord {
        delivery: Some("line\nbreak \u{1b}[31m".to_owned()),
        ..AuditRecord::default()
    };
    log.record(&record).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text.lines().count(),
        1,
        "control characters are encoded: {text}"
    );
    assert!(text.ends_with('\n') && !text.contains('\u{1b}'));
}
