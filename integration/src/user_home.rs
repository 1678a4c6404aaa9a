//! Runs a program as a user whose home folder, by the user database, is a folder of a test.
//!
//! The exec plugin finds the user's own file by the user database and not by `HOME`, which the
//! author of a kubeconfig can set. So the program runs in a mount namespace with another
//! `/etc/passwd`.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file below a home folder that the exec plugin reads.
const CLIENT_FILE: &str = ".config/keyferry/client.yaml";

/// Writes a script into `home` that runs `program` with the same arguments and environment, and
/// returns its path.
///
/// # Errors
/// A file cannot be written, or there is no `unshare`, `mount` or `install`.
pub fn program_at_home(program: &Path, home: &Path) -> io::Result<PathBuf> {
    let folder = home.join(".user");
    std::fs::create_dir_all(&folder)?;
    let uid = std::fs::metadata("/proc/self")?.uid();
    let home = home.display();
    let users = folder.join("passwd");
    // Without root's rights, the user becomes root of a user namespace.
    let further = if uid == 0 { "" } else { "--map-root-user" };
    std::fs::write(
        &users,
        format!("root:x:0:0::{home}:/bin/sh\nuser:x:{uid}:{uid}::{home}:/bin/sh\n"),
    )?;
    let name = program.file_name().unwrap_or(program.as_os_str());
    let script = folder.join(name);
    let text = format!(
        "#!/bin/sh\nexec {} {further} --mount /bin/sh -c \
         '{} --bind {} /etc/passwd && exec \"$0\" \"$@\"' {} \"$@\"\n",
        find_program("unshare")?.display(),
        find_program("mount")?.display(),
        users.display(),
        program.display(),
    );
    // Another process writes the script. If this one did, a child that a test starts beside it could
    // inherit the open file, and to run the script would fail with "Text file busy".
    let written = folder.join("script");
    std::fs::write(&written, text)?;
    let install = Command::new(find_program("install")?)
        .args(["-m", "755"])
        .args([&written, &script])
        .status()?;
    match install.success() {
        true => Ok(script),
        false => Err(io::Error::other(format!("install: {install}"))),
    }
}

/// Writes the client file of the user with this home folder, and returns its path.
///
/// # Errors
/// The file cannot be written.
pub fn write_client_file(home: &Path, text: &str) -> io::Result<PathBuf> {
    let path = home.join(CLIENT_FILE);
    std::fs::create_dir_all(path.parent().unwrap_or(home))?;
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Finds the client file that `keyferry kubeconfig --exec` or `keyferry credential` printed on
/// standard error, for the user to write.
pub fn printed_client_file(stderr: &str) -> Option<String> {
    let is_of_file = |line: &&str| !line.starts_with("note: ");
    let file = stderr
        .lines()
        .skip_while(|line| !line.starts_with("apiVersion: config."));
    let lines: Vec<&str> = file.take_while(is_of_file).collect();
    (!lines.is_empty()).then(|| lines.join("\n") + "\n")
}

/// Returns the path of a program. The script runs with a `PATH` that may have only the tested ones.
fn find_program(program: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places
        .find(|place| place.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no {program}")))
}
