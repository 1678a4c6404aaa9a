//! The flags that name the user to impersonate at a target, by kubectl's names.

use std::str::FromStr;

use clap::Args;
use keyferry_client::doctor::impersonated_user::ImpersonatedUser;

use crate::args::TARGET;
use crate::command_error::CommandError;

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The flags that name a user to impersonate at the target.
#[derive(Args)]
pub(crate) struct ImpersonationArgs {
    /// The user to impersonate at the target.
    ///
    /// A user name, or NAMESPACE/NAME or NAMESPACE:NAME of a ServiceAccount, as Flux impersonates
    /// it; user/NAME is always a user name.
    #[arg(long = "as", value_name = "USER", help_heading = TARGET)]
    as_user: Option<String>,
    /// A group to impersonate with --as (may be repeated)
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user", help_heading = TARGET, hide_short_help = true)]
    as_group: Vec<HeaderText>,
    /// The UID to impersonate with --as.
    #[arg(long = "as-uid", value_name = "UID", requires = "as_user", help_heading = TARGET, hide_short_help = true)]
    as_uid: Option<HeaderText>,
    /// An extra to impersonate with --as (may be repeated)
    #[arg(
        long = "as-user-extra",
        value_name = "KEY=VALUE",
        requires = "as_user",
        help_heading = TARGET, hide_short_help = true)]
    as_user_extra: Vec<Extra>,
}

/// Text that an HTTP header can carry unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeaderText(String);

/// A key and one of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Extra(String, String);

/// Why a text cannot be impersonated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum HeaderTextError {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// A header cannot carry it.
    #[error("it has a control character, or begins or ends with a space")]
    Unfit,
    /// There is no key before a value.
    #[error("write KEY=VALUE")]
    NoKey,
}

impl FromStr for HeaderText {
    type Err = HeaderTextError;

    fn from_str(text: &str) -> Result<Self, HeaderTextError> {
        if text.is_empty() {
            return Err(HeaderTextError::Empty);
        }
        // A target drops the spaces, and would then answer as another user.
        if text.trim() != text || text.chars().any(char::is_control) {
            return Err(HeaderTextError::Unfit);
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for Extra {
    type Err = HeaderTextError;

    fn from_str(text: &str) -> Result<Self, HeaderTextError> {
        let (key, value) = text.split_once('=').ok_or(HeaderTextError::NoKey)?;
        if key.is_empty() {
            return Err(HeaderTextError::NoKey);
        }
        let (key, value) = (key.parse::<HeaderText>()?, value.parse::<HeaderText>()?);
        Ok(Self(key.0, value.0))
    }
}

impl ImpersonationArgs {
    /// Returns the user that the flags name, if they name one.
    pub(crate) fn user(&self) -> Result<Option<ImpersonatedUser>, CommandError> {
        let Some(user) = &self.as_user else {
            return Ok(None);
        };
        let unfit =
            |error: HeaderTextError| CommandError::new(format!("reading --as {user:?}: {error}"));
        let HeaderText(name) = user_name(user)?.parse().map_err(unfit)?;
        Ok(Some(ImpersonatedUser {
            name,
            groups: self.as_group.iter().map(|group| group.0.clone()).collect(),
            uid: self.as_uid.as_ref().map(|uid| uid.0.clone()),
            extra: self
                .as_user_extra
                .iter()
                .map(|Extra(key, value)| (key.clone(), value.clone()))
                .collect(),
        }))
    }
}

/// Returns the user name that `--as` means.
fn user_name(text: &str) -> Result<String, CommandError> {
    if let Some(name) = text.strip_prefix("user/") {
        return Ok(name.to_owned());
    }
    let (short, is_account) = match text.strip_prefix(SERVICE_ACCOUNT) {
        Some(short) => (short, true),
        None => (text, false),
    };
    match crate::args::names::service_account(short) {
        Err(error) if is_account => Err(CommandError::new(format!(
            "reading --as: {error}; write NAMESPACE/NAME of a ServiceAccount"
        ))),
        // Names like system:admin belong to Kubernetes. None is short for a ServiceAccount.
        Ok(account) if is_account || !text.starts_with("system:") => Ok(format!(
            "{SERVICE_ACCOUNT}{}:{}",
            account.namespace, account.name
        )),
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: ImpersonationArgs,
    }

    fn parsed(flags: &[&str]) -> Result<Option<ImpersonatedUser>, String> {
        let flags = std::iter::once("test").chain(flags.iter().copied());
        let command = Command::try_parse_from(flags).map_err(|error| error.to_string())?;
        command.args.user().map_err(|error| error.problem)
    }

    #[test]
    fn a_name_is_a_user_or_a_service_account() {
        for (text, name) in [
            ("jane", "jane"),
            ("jane@example.com", "jane@example.com"),
            ("apps:deployer", "system:serviceaccount:apps:deployer"),
            ("apps/deployer", "system:serviceaccount:apps:deployer"),
            (
                "system:serviceaccount:apps:deployer",
                "system:serviceaccount:apps:deployer",
            ),
            ("system:admin", "system:admin"),
            ("system:node:n1", "system:node:n1"),
            (
                "hub:system:serviceaccount:a:b",
                "hub:system:serviceaccount:a:b",
            ),
            ("https://issuer.example#jane", "https://issuer.example#jane"),
            ("user/oidc:jane", "oidc:jane"),
            ("Zoë", "Zoë"),
        ] {
            let found = parsed(&["--as", text]).unwrap().unwrap();
            assert_eq!(found, ImpersonatedUser::named(name), "{text}");
        }
        assert_eq!(parsed(&[]), Ok(None));
    }

    #[test]
    fn all_parts_are_read() {
        let arguments = parsed(&[
            "--as",
            "jane",
            "--as-group",
            "a",
            "--as-group=b",
            "--as-uid=u",
            "--as-user-extra",
            "example.com/team=red=blue",
        ]);
        let expected = ImpersonatedUser {
            groups: vec!["a".to_owned(), "b".to_owned()],
            uid: Some("u".to_owned()),
            extra: vec![("example.com/team".to_owned(), "red=blue".to_owned())],
            ..ImpersonatedUser::named("jane")
        };
        assert_eq!(arguments, Ok(Some(expected)));
    }

    #[test]
    fn what_no_header_carries_is_refused() {
        for (flags, fault) in [
            (&["--as", ""][..], "it is empty"),
            (&["--as", " jane"], "begins or ends with a space"),
            (&["--as", "a\nb"], "control character"),
            (
                &["--as", "system:serviceaccount:apps"],
                "write NAMESPACE/NAME",
            ),
            (&["--as-group", "a"], "--as <USER>"),
            (&["--as", "a", "--as-group", ""], "it is empty"),
            (&["--as", "a", "--as-user-extra", "key"], "write KEY=VALUE"),
            (&["--as", "a", "--as-user-extra", "=v"], "write KEY=VALUE"),
        ] {
            let found = parsed(flags).unwrap_err();
            assert!(found.contains(fault), "{flags:?}: {found}");
        }
    }
}
