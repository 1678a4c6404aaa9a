//! Opens the link in a browser, without showing it to other users of the machine.

use std::io::Write;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;

/// The program that opens a file with the user's browser.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// Writes a file, readable by its owner alone, that leads a browser to the link. The link itself in
/// the arguments of a program would be visible to every user of the machine.
///
/// # Errors
/// The operating system's error.
pub(super) fn write_redirect_file(link: &str) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix("keyferry-dashboard-")
        .suffix(".html")
        .tempfile()?;
    write!(
        file,
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={link}\">\n<title>Keyferry</title>\n"
    )?;
    file.flush()?;
    Ok(file)
}

/// Starts the user's browser with the file, and does not wait for it.
///
/// # Errors
/// The operating system's error.
pub(super) fn open_in_browser(file: &NamedTempFile) -> std::io::Result<()> {
    Command::new(OPENER)
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::write_redirect_file;

    #[test]
    fn only_its_owner_can_read_the_link() {
        let link = "http://127.0.0.1:1/open/code";
        let file = write_redirect_file(link).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.contains(&format!("url={link}\"")), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = file.as_file().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists(), "the file ends with the viewer");
    }
}
