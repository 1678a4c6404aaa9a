//! The caller's token as it came.

use std::borrow::Cow;
use std::fmt;

use secrecy::SecretString;
use zeroize::Zeroize;

/// A caller's token where it stands in its request. It cannot be printed, and nothing copies it
/// until the hub must be asked.
pub struct PresentedToken<'a>(Cow<'a, str>);

impl<'a> PresentedToken<'a> {
    /// A token as it was read from a request; one that had to be decoded is a copy, and is wiped
    /// when it goes.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        PresentedToken(text.into())
    }

    /// The token itself, for the one place that looks it up.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A copy that outlives the request.
    pub fn keep(&self) -> SecretString {
        self.expose().into()
    }
}

impl Drop for PresentedToken<'_> {
    fn drop(&mut self) {
        if let Cow::Owned(decoded) = &mut self.0 {
            decoded.zeroize();
        }
    }
}

impl fmt::Debug for PresentedToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresentedToken([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::PresentedToken;

    #[test]
    fn it_is_not_printed_and_a_kept_one_is_the_same() {
        for token in [
            PresentedToken::new("a.b.c"),
            PresentedToken::new("a.b.c".to_owned()),
        ] {
            assert!(!format!("{token:?}").contains("a.b.c"));
            assert_eq!(token.keep().expose_secret(), token.expose());
        }
    }
}
