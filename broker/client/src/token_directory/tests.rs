#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use secrecy::ExposeSecret;

use super::{Rights, TokenDirectory, is_dated, read_token};

/// Damages a directory that is not the agent's.
type Spoil<'a> = &'a dyn Fn(&Path);

const OWN: Rights = Rights {
    mode: 0o600,
    group: None,
};

fn now() -> Timestamp {
    "2026-08-01T10:00:00Z".parse().unwrap()
}

fn entries(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn files_change_together_and_nothing_old_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let directory = TokenDirectory::open_directory(&path, &[], OWN).unwrap();
    assert!(
        directory
            .replace_files(&[("token", b"one"), ("ca.crt", b"ca")], now(), 1)
            .unwrap()
    );
    assert_eq!(
        entries(&path),
        [
            "..2026_08_01_10_00_00.0000000000000001",
            "..data",
            "ca.crt",
            "token"
        ]
    );
    assert_eq!(read_token(&path).unwrap().expose_secret(), "one");
    assert_eq!(
        (
            mode(&path.join("token")),
            mode(&path),
            mode(&path.join("..data/"))
        ),
        (0o600, 0o700, 0o700)
    );
    assert!(
        !directory
            .replace_files(&[("token", b"one"), ("ca.crt", b"ca")], now(), 2)
            .unwrap(),
        "the same is not written again"
    );
    assert!(
        directory
            .replace_files(&[("token", b"two")], now(), 3)
            .unwrap()
    );
    assert_eq!(
        entries(&path),
        ["..2026_08_01_10_00_00.0000000000000003", "..data", "token"],
        "a CA that is gone leaves no link"
    );
    assert_eq!(std::fs::read_to_string(path.join("token")).unwrap(), "two");
}

#[test]
fn a_reader_sees_old_or_new_files_and_never_some_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let directory = TokenDirectory::open_directory(path, &[], OWN).unwrap();
    directory
        .replace_files(&[("token", b"0"), ("ca.crt", b"0")], now(), 0)
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            loop {
                // Reads once more after the last round, because the reader may have missed all of
                // them.
                let last = done.load(Ordering::SeqCst);
                // Resolves `..data` once, like a reader that wants both files of one round.
                let data = path.join(std::fs::read_link(path.join("..data")).unwrap());
                let (token, ca) = (
                    std::fs::read_to_string(data.join("token")),
                    std::fs::read_to_string(data.join("ca.crt")),
                );
                if let (Ok(token), Ok(ca)) = (token, ca) {
                    assert_eq!(token, ca);
                    reads += 1;
                }
                // Through the visible name, there is always a token.
                assert!(
                    !std::fs::read_to_string(path.join("token")).is_ok_and(|text| text.is_empty())
                );
                if last {
                    break reads;
                }
            }
        });
        for round in 1..200_u64 {
            let text = round.to_string();
            directory
                .replace_files(
                    &[("token", text.as_bytes()), ("ca.crt", text.as_bytes())],
                    now(),
                    round,
                )
                .unwrap();
        }
        done.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn rights_are_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let group = rustix::process::getegid().as_raw();
    let rights = Rights {
        mode: 0o440,
        group: Some(group),
    };
    let directory = TokenDirectory::open_directory(&path, &["tenant-a", "prod"], rights).unwrap();
    directory
        .replace_files(&[("token", b"one")], now(), 1)
        .unwrap();
    let access_directory = path.join("tenant-a/prod");
    assert_eq!(
        (
            mode(&access_directory.join("token")),
            mode(&access_directory.join("..data/")),
            mode(&access_directory)
        ),
        (0o440, 0o750, 0o750)
    );
    assert_eq!(
        (mode(&path), mode(&path.join("tenant-a"))),
        (0o750, 0o750),
        "a reader must get there"
    );
    drop(directory);
    // With other permissions requested, the files are written again.
    let directory = TokenDirectory::open_directory(&path, &["tenant-a", "prod"], OWN).unwrap();
    assert!(
        directory
            .replace_files(&[("token", b"one")], now(), 2)
            .unwrap()
    );
    assert_eq!(mode(&access_directory.join("token")), 0o600);
}

#[test]
fn what_is_not_the_agents_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, "foreign").unwrap();
    let cases: [(&str, Spoil<'_>); 5] = [
        ("token", &|path| {
            std::fs::write(path.join("token"), "mine").unwrap()
        }),
        ("token", &|path| {
            symlink(&foreign, path.join("token")).unwrap()
        }),
        ("..data", &|path| {
            symlink(folder.path(), path.join("..data")).unwrap()
        }),
        ("..data", &|path| {
            std::fs::create_dir(path.join("..data")).unwrap()
        }),
        ("..data", &|path| {
            std::fs::write(path.join("..data"), "mine").unwrap()
        }),
    ];
    for (index, (name, spoil)) in cases.iter().enumerate() {
        let path = folder.path().join(format!("case-{index}"));
        std::fs::create_dir(&path).unwrap();
        spoil(&path);
        let before = entries(&path);
        let error = TokenDirectory::open_directory(&path, &[], OWN)
            .unwrap()
            .replace_files(&[("token", b"one")], now(), 1)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(name) && error.contains("was not created by the agent"),
            "{error}"
        );
        assert_eq!(entries(&path), before);
    }
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "foreign");
    let link = folder.path().join("link");
    symlink(folder.path().join("case-0"), &link).unwrap();
    assert!(
        TokenDirectory::open_directory(&link, &[], OWN).is_err(),
        "a link in the place of the directory"
    );
    assert!(
        TokenDirectory::open_directory(&foreign, &[], OWN).is_err(),
        "a file"
    );
    assert!(
        TokenDirectory::open_directory(&folder.path().join("missing/tokens"), &[], OWN).is_err(),
        "parents are the user's to make"
    );
}

#[test]
fn a_killed_agent_leaves_nothing_that_holds_up_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let directory = TokenDirectory::open_directory(path, &[], OWN).unwrap();
    directory
        .replace_files(&[("token", b"one")], now(), 1)
        .unwrap();
    assert!(
        TokenDirectory::open_directory(path, &[], OWN)
            .err()
            .unwrap()
            .problem
            .contains("another agent")
    );
    drop(directory);
    let unfinished = path.join("..2026_08_01_09_00_00.00000000000000aa");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("token"), "half").unwrap();
    symlink(
        "..2026_08_01_09_00_00.00000000000000aa",
        path.join("..data_tmp"),
    )
    .unwrap();
    // An entry that looks like the agent's but is a link: its target is not emptied.
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("token"), "foreign").unwrap();
    symlink(
        outside.path(),
        path.join("..2026_08_01_09_00_00.00000000000000bb"),
    )
    .unwrap();
    let directory = TokenDirectory::open_directory(path, &[], OWN).unwrap();
    directory
        .replace_files(&[("token", b"two")], now(), 2)
        .unwrap();
    assert!(!unfinished.exists() && !path.join("..data_tmp").exists());
    assert_eq!(std::fs::read_to_string(path.join("token")).unwrap(), "two");
    assert_eq!(
        std::fs::read_to_string(outside.path().join("token")).unwrap(),
        "foreign"
    );
    for name in [
        "..data",
        "..2026_08_01_10_00_00.000000000000000g",
        "..2026-08-01_10_00_00.0000000000000000",
        "",
    ] {
        assert!(!is_dated(name), "{name}");
    }
}

/// `--dir /tmp` put a token and a kubeconfig into the folder of all users.
#[test]
fn a_folder_of_all_users_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let set = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path(), permissions).unwrap();
    };
    set(0o1777);
    let error = TokenDirectory::open_directory(folder.path(), &[], OWN)
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("every user may write there"),
        "{error}"
    );
    // The root of a Pod's volume is writable by all of its containers.
    for mode in [0o777, 0o2777, 0o700] {
        set(mode);
        assert!(
            TokenDirectory::open_directory(folder.path(), &[], OWN).is_ok(),
            "{mode:o}"
        );
    }
}
