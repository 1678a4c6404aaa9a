//! The caller's token as received.

use std::borrow::Cow;
use std::fmt;

use secrecy::SecretString;
use zeroize::Zeroize;

/// A caller's token, borrowed from its request. It cannot be printed, and it is copied only when
/// the hub must be asked.
pub struct PresentedToken<'a>(Cow<'a, str>);

impl<'a> PresentedToken<'a> {
    /// Takes a token from a request. A token that had to be decoded is a copy, and is wiped on
    /// drop.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        PresentedToken(text.into())
    }

    /// The token itself, for the one place that looks it up.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Makes a copy that outlives the request.
    pub fn to_secret(&self) -> SecretString {
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
            assert_eq!(format!("{token:?}"), "PresentedToken([redacted])");
            assert_eq!(token.expose(), "a.b.c");
            assert_eq!(token.to_secret().expose_secret(), "a.b.c");
        }
    }
}
