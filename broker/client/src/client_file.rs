//! The user's own client file: which server the exec plugin asks, and as which caller. A kubeconfig
//! written by someone else cannot redirect it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use keyferry_api::foreign_text;
use keyferry_api::name::ObjectName;
use keyferry_core::client_document::{ClientDocument, ClientDocumentError, MAX_CLIENT_FILE_BYTES};
use keyferry_hub::client::HubAccess;
use rustix::fs::OFlags;
use serde_json::Value;

use super::caller_token::CallerTokenSource;
use super::ci_token::{self, CiTokenSource};
use super::client_certificate::ClientCertificateFiles;
use super::server::ServerAddress;

/// Write permission for anyone but the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The content of the client file.
#[derive(Debug)]
pub struct ClientFile {
    /// The server to ask.
    pub server: ServerAddress,
    /// Where the caller's token comes from.
    pub caller: CallerTokenSource,
    /// Whether a client that does not name its target server still gets a token.
    pub allow_unpinned_server: bool,
    /// The folder in which the exec plugin keeps tokens between calls, if the file names one.
    pub cache_dir: Option<PathBuf>,
}

/// The client file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("reading the client configuration {path}: {problem}")]
pub struct ClientFileError {
    /// The client file.
    pub path: PathBuf,
    /// The problem with it, and the fix.
    pub problem: ClientFileProblem,
}

/// Why a client file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientFileProblem {
    /// The error of the operating system.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// A pipe, a device, a socket or a folder.
    #[error("it is not a regular file")]
    NotRegular,
    /// Another user owns the file.
    #[error("it belongs to another user, who could send your tokens elsewhere; make it your own")]
    OtherOwner,
    /// The mode of the file lets its group or everyone write it.
    #[error("others may write it, and could send your tokens elsewhere; chmod go-w")]
    WritableByOthers,
    /// The file is not UTF-8, or could not be read to its end.
    #[error("it is not readable text")]
    NotText,
    /// The text of the file cannot be used.
    #[error(transparent)]
    Document(#[from] ClientDocumentError),
}

/// Reads the client file; `None` if it does not exist. Relative paths in it start at its folder.
///
/// # Errors
/// [`ClientFileError`]: other users could have written it, or it has unknown content.
pub fn read_client_file(
    path: &Path,
    caller_audience: &str,
) -> Result<Option<ClientFile>, ClientFileError> {
    try_read(path, caller_audience).map_err(|problem| ClientFileError {
        path: path.to_owned(),
        problem,
    })
}

fn try_read(path: &Path, caller_audience: &str) -> Result<Option<ClientFile>, ClientFileProblem> {
    let Some(text) = trusted_text(path)? else {
        return Ok(None);
    };
    let document = ClientDocument::read(&text, caller_audience)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let resolve_path = |file: Option<PathBuf>| file.map(|file| folder.join(file));
    let github_host = document
        .github_oidc_host
        .unwrap_or_else(|| ci_token::GITHUB_HOST.to_owned());
    let client_certificate =
        document
            .client_certificate
            .map(|(certificate, key)| ClientCertificateFiles {
                certificate: folder.join(certificate),
                key: folder.join(key),
            });
    Ok(Some(ClientFile {
        server: ServerAddress {
            url: document.server,
            certificate_authority: resolve_path(document.certificate_authority),
        },
        caller: CallerTokenSource {
            token_file: resolve_path(document.token_file),
            ci: match (document.github_oidc, document.token_env) {
                (true, _) => Some(CiTokenSource::GithubOidc {
                    host: Some(github_host),
                }),
                (false, name) => name.map(CiTokenSource::Variable),
            },
            service_account: document.service_account,
            audience: Some(document.caller_audience),
            hub: HubAccess {
                kubeconfig: resolve_path(document.kubeconfig),
                context: document.context,
                ..HubAccess::default()
            },
            client_certificate,
        },
        allow_unpinned_server: document.allow_unpinned_server,
        cache_dir: resolve_path(document.cache_dir),
    }))
}

/// Returns the text of a client file that names this server and this caller, for a person to write.
/// Each value is one quoted line, because another person may have chosen it.
pub fn write_client_file(
    server: &ServerAddress,
    caller: &CallerTokenSource,
    default_audience: &str,
) -> String {
    let path = |path: &Option<PathBuf>| {
        path.as_deref()
            .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
            .map(|path| path.display().to_string())
    };
    let pair = caller.client_certificate.as_ref();
    let certificate = pair.map(|pair| pair.certificate.clone());
    let variable = match &caller.ci {
        Some(CiTokenSource::Variable(name)) => Some(name.clone()),
        Some(CiTokenSource::GithubOidc { .. }) | None => None,
    };
    let audience = caller
        .audience
        .as_ref()
        .map(|audience| audience.as_str().to_owned());
    let text_of_member = |(name, value): (&str, Option<String>)| {
        value.map(|value| {
            format!(
                "{name}: {}\n",
                foreign_text::escape_json(&Value::from(value).to_string())
            )
        })
    };
    let members = [
        ("server", Some(server.url.clone())),
        ("certificateAuthority", path(&server.certificate_authority)),
        ("tokenFile", path(&caller.token_file)),
        ("tokenEnv", variable),
        ("clientCertificate", path(&certificate)),
        ("clientKey", path(&pair.map(|pair| pair.key.clone()))),
        (
            "serviceAccount",
            caller.service_account.as_ref().map(ObjectName::to_string),
        ),
        (
            "callerAudience",
            audience.filter(|audience| audience != default_audience),
        ),
        ("kubeconfig", path(&caller.hub.kubeconfig)),
        ("context", caller.hub.context.clone()),
    ];
    let github = matches!(caller.ci, Some(CiTokenSource::GithubOidc { .. }));
    let lines: String = members.into_iter().filter_map(text_of_member).collect();
    format!(
        "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\n{lines}{}",
        if github { "githubOIDC: true\n" } else { "" }
    )
}

/// Returns the text if only the user and root can have written it.
fn trusted_text(path: &Path) -> Result<Option<String>, ClientFileProblem> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::CLOEXEC).bits()).unwrap_or_default();
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ClientFileProblem::NotRegular);
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() && metadata.uid() != 0 {
        return Err(ClientFileProblem::OtherOwner);
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(ClientFileProblem::WritableByOthers);
    }
    let mut text = String::new();
    // One byte more than a client file may have, so that a longer one is refused and not cut.
    file.take(MAX_CLIENT_FILE_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|_| ClientFileProblem::NotText)?;
    Ok(Some(text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{
        CallerTokenSource, ClientFileProblem, ServerAddress, read_client_file, write_client_file,
    };

    const GOOD: &str = "apiVersion: config.keyferry.dev/v1alpha1\nkind: ClientConfiguration\nserver: https://k.example\n\
                        certificateAuthority: ca.crt\ntokenFile: /run/token\n";

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn it_names_the_server_and_the_caller() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.yaml");
        assert!(
            read_client_file(&path, "keyferry.dev").unwrap().is_none(),
            "no file is no mistake"
        );
        write(&path, GOOD, 0o644);
        let file = read_client_file(&path, "keyferry.dev").unwrap().unwrap();
        assert_eq!(
            file.server.certificate_authority,
            Some(folder.path().join("ca.crt"))
        );
        assert_eq!(
            file.caller.token_file.as_deref(),
            Some(Path::new("/run/token"))
        );
        assert!(!file.allow_unpinned_server, "never by itself");
    }

    #[test]
    fn a_file_that_is_proposed_is_one_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.yaml");
        write(&path, GOOD, 0o600);
        let file = read_client_file(&path, "keyferry.dev").unwrap().unwrap();
        let text = write_client_file(&file.server, &file.caller, "keyferry.dev");
        write(&path, &text, 0o600);
        let again = read_client_file(&path, "keyferry.dev").unwrap().unwrap();
        assert_eq!(format!("{again:?}"), format!("{file:?}"));
        // A value adds no line of its own.
        let server = ServerAddress {
            url: "https://k.example\ntokenFile: /etc/shadow\u{202e}\u{2028}kind: x".to_owned(),
            certificate_authority: None,
        };
        let text = write_client_file(&server, &CallerTokenSource::default(), "keyferry.dev");
        assert!(text.lines().count() == 3 && text.is_ascii(), "{text}");
    }

    #[test]
    fn what_others_can_write_or_is_not_known_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.yaml");
        for mode in [0o666, 0o622, 0o664] {
            write(&path, GOOD, mode);
            assert!(
                matches!(
                    read_client_file(&path, "keyferry.dev").unwrap_err().problem,
                    ClientFileProblem::WritableByOthers
                ),
                "{mode:o}"
            );
        }
        for text in [
            &format!("{GOOD}further: true\n"),
            &format!("{GOOD}server: https://evil.example\n"),
            "apiVersion: v1\nkind: ClientConfiguration\nserver: https://k.example\n",
            "kind: ClientConfiguration\n",
            "",
            "{",
            &"x".repeat(70_000),
        ] {
            write(&path, text, 0o600);
            assert!(
                read_client_file(&path, "keyferry.dev").is_err(),
                "{}",
                text.get(..40.min(text.len())).unwrap_or_default()
            );
        }
        assert!(matches!(
            read_client_file(folder.path(), "keyferry.dev")
                .unwrap_err()
                .problem,
            ClientFileProblem::NotRegular
        ));
    }
}
