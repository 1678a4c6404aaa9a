//! A bare repository that a test commits to.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::GitError;

/// A bare repository. Its only branch is `main`.
#[derive(Debug)]
pub struct Repository {
    bare: PathBuf,
    tree: PathBuf,
    url: String,
}

impl Repository {
    pub(super) async fn create(folder: &Path, name: &str, url: String) -> Result<Self, GitError> {
        let bare = folder.join(format!("{name}.git"));
        let tree = folder.join(format!("{name}.tree"));
        std::fs::create_dir_all(&tree).map_err(|source| GitError::File {
            what: format!("make {}", tree.display()),
            source,
        })?;
        let repository = Self { bare, tree, url };
        let bare = repository.bare.display().to_string();
        repository
            .run(&["init", "--quiet", "--bare", "--initial-branch=main", &bare])
            .await?;
        Ok(repository)
    }

    /// The URL at which clients read it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Commits exactly these files (path, text); returns the commit's hash.
    ///
    /// # Errors
    /// git failed, for example because nothing has changed.
    pub async fn commit(&self, files: &[(&str, &str)]) -> Result<String, GitError> {
        let failed = |what: String| move |source| GitError::File { what, source };
        std::fs::remove_dir_all(&self.tree)
            .map_err(failed(format!("empty {}", self.tree.display())))?;
        std::fs::create_dir_all(&self.tree)
            .map_err(failed(format!("make {}", self.tree.display())))?;
        for (path, text) in files {
            let file = self.tree.join(path);
            if let Some(parent) = file.parent() {
                std::fs::create_dir_all(parent)
                    .map_err(failed(format!("make {}", parent.display())))?;
            }
            std::fs::write(&file, text).map_err(failed(format!("write {path}")))?;
        }
        self.in_tree(&["add", "--all", "."]).await?;
        self.in_tree(&["commit", "--quiet", "--message=As the test wants it"])
            .await?;
        Ok(self
            .in_tree(&["rev-parse", "HEAD"])
            .await?
            .trim()
            .to_owned())
    }

    async fn in_tree(&self, args: &[&str]) -> Result<String, GitError> {
        let (bare, tree) = (
            format!("--git-dir={}", self.bare.display()),
            format!("--work-tree={}", self.tree.display()),
        );
        let all: Vec<&str> = [bare.as_str(), tree.as_str()]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        self.run(&all).await
    }

    async fn run(&self, args: &[&str]) -> Result<String, GitError> {
        let command = || {
            args.iter()
                .find(|one| !one.starts_with('-'))
                .copied()
                .unwrap_or_default()
                .to_owned()
        };
        let output = Command::new("git")
            .args(args)
            .current_dir(&self.tree)
            // Ignore everything of the user who runs the tests: settings, signing, hooks.
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .envs([
                ("GIT_AUTHOR_NAME", "test"),
                ("GIT_AUTHOR_EMAIL", "test@keyferry.test"),
            ])
            .envs([
                ("GIT_COMMITTER_NAME", "test"),
                ("GIT_COMMITTER_EMAIL", "test@keyferry.test"),
            ])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| GitError::File {
                what: "start git".to_owned(),
                source,
            })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(GitError::Git {
            command: command(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
