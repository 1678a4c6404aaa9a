//! The folders in which the exec plugin looks for the user's own file.
//!
//! Neither an argument nor a variable chooses them. The author of a kubeconfig or of a list of
//! clusters writes the plugin's arguments, and with the stanza's `env` also `HOME`,
//! `XDG_CONFIG_HOME` and `KEYFERRY_*`. With a folder of their choice, such as one below a cloned
//! repository, they would choose the server that gets the caller's token.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use keyferry_platform::regular_file;

/// The folder of the machine, for images whose users have no entry in the user database.
pub const SYSTEM_FOLDER: &str = "/etc/keyferry";
/// The name of the file that is used where no argument names another one.
pub const FILE_NAME: &str = "client.yaml";
/// The folder in the user's home.
const IN_HOME: &str = ".config/keyferry";
const USERS_FILE: &str = "/etc/passwd";
const MAX_USERS_BYTES: u64 = 4 * 1024 * 1024;
/// The programs that look a user up where `/etc/passwd` has no entry, as with LDAP or on macOS.
const LOOK_UPS: [(&str, &[&str]); 2] = [("/usr/bin/getent", &["passwd"]), ("/usr/bin/id", &["-P"])];

/// The folders, the first one that has a file first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFolders(Vec<PathBuf>);

/// An argument or a variable names a file elsewhere.
#[derive(Debug, thiserror::Error)]
#[error(
    "the client configuration {} is not in {folders}, and the exec plugin reads no other folder, \
     because the author of a kubeconfig can write its arguments and variables",
    path.display()
)]
pub struct ElsewhereError {
    path: PathBuf,
    folders: String,
}

impl PluginFolders {
    /// The folders of the user who runs this process.
    pub fn of_this_user() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let home = regular_file::read_regular_file(Path::new(USERS_FILE), MAX_USERS_BYTES)
            .ok()
            .and_then(|users| home_in(&String::from_utf8_lossy(&users), uid))
            .or_else(|| looked_up_home(uid));
        Self::of_home(home.as_deref())
    }

    /// The folders of a user with this home folder.
    pub fn of_home(home: Option<&Path>) -> Self {
        let own = home.map(|home| home.join(IN_HOME));
        Self(own.into_iter().chain([SYSTEM_FOLDER.into()]).collect())
    }

    /// Returns the files to look for, in this order: the named one, or `client.yaml` in each folder.
    ///
    /// # Errors
    /// [`ElsewhereError`]: the named file is not directly in one of the folders.
    pub fn files(&self, named: Option<&Path>) -> Result<Vec<PathBuf>, ElsewhereError> {
        let Some(named) = named else {
            return Ok(self.0.iter().map(|folder| folder.join(FILE_NAME)).collect());
        };
        // Compared as texts: `..` and links elsewhere on the path could lead out of the folder.
        let inside = |folder: &PathBuf| {
            let name = named.file_name().map(|name| folder.join(name));
            name.is_some_and(|path| path.as_os_str() == named.as_os_str())
        };
        if self.0.iter().any(inside) {
            Ok(vec![named.to_owned()])
        } else {
            Err(ElsewhereError {
                path: named.to_owned(),
                folders: self.to_string(),
            })
        }
    }
}

impl fmt::Display for PluginFolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders = self.0.iter().map(|folder| folder.display().to_string());
        f.write_str(&folders.collect::<Vec<_>>().join(" or "))
    }
}

/// Finds the home folder of a user in the text of a user database.
fn home_in(users: &str, uid: u32) -> Option<PathBuf> {
    let home = users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        // macOS has three more fields before the home folder, which is the last but one in both.
        let (id, home) = (fields.get(2)?, fields.get(fields.len().checked_sub(2)?)?);
        (fields.len() >= 7 && id.parse() == Ok(uid)).then_some(*home)
    })?;
    Some(PathBuf::from(home)).filter(|home| home.is_absolute())
}

/// Asks the system's own programs, without any variable of the environment.
fn looked_up_home(uid: u32) -> Option<PathBuf> {
    LOOK_UPS.iter().find_map(|(program, arguments)| {
        let output = Command::new(program)
            .args(*arguments)
            .arg(uid.to_string())
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        home_in(&String::from_utf8_lossy(&output.stdout), uid)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{PluginFolders, home_in};

    #[test]
    fn the_home_folder_is_that_of_the_user_database() {
        let users = "root:x:0:0:root:/root:/bin/bash\n# a comment\nbroken:x:7\n\
                     app:x:65532:65532::/home/app:/sbin/nologin\n\
                     mac:*:501:20::0:0:A B:/Users/mac:/bin/zsh\nrelative:x:8:8::home:/bin/sh\n";
        let home = |uid| home_in(users, uid);
        assert_eq!(home(0), Some(PathBuf::from("/root")));
        assert_eq!(home(65532), Some(PathBuf::from("/home/app")));
        assert_eq!(home(501), Some(PathBuf::from("/Users/mac")));
        for missing in [7, 8, 1000] {
            assert_eq!(home(missing), None, "{missing}");
        }
    }

    #[test]
    fn a_named_file_is_in_one_of_the_two_folders() {
        let folders = PluginFolders::of_home(Some(Path::new("/home/a")));
        let default = [
            "/home/a/.config/keyferry/client.yaml",
            "/etc/keyferry/client.yaml",
        ];
        assert_eq!(folders.files(None).unwrap(), default.map(PathBuf::from));
        for inside in [
            "/home/a/.config/keyferry/second.yaml",
            "/etc/keyferry/b.yaml",
        ] {
            let files = folders.files(Some(Path::new(inside))).unwrap();
            assert_eq!(files, [PathBuf::from(inside)]);
        }
        for elsewhere in [
            "client.yaml",
            "/home/a/.config/client.yaml",
            "/home/a/.config/keyferry/x/client.yaml",
            "/home/a/.config/keyferry/../client.yaml",
            "/home/a/.config/keyferry/x/../client.yaml",
            "/home/a/.config/keyferry/..",
            "/home/a/.config/keyferry/",
            "/home/a/./.config/keyferry/client.yaml",
            "/home/b/.config/keyferry/client.yaml",
            "/etc/keyferry",
            "/tmp/etc/keyferry/client.yaml",
            "",
        ] {
            let error = folders.files(Some(Path::new(elsewhere))).unwrap_err();
            assert!(error.to_string().contains("/etc/keyferry"), "{elsewhere}");
        }
        let without = PluginFolders::of_home(None).files(None).unwrap();
        assert_eq!(without, [PathBuf::from("/etc/keyferry/client.yaml")]);
    }
}
