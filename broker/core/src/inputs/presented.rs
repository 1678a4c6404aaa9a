//! What a machine presents in `Authorization` to read fleet inputs: Bearer (RFC 6750) or Basic
//! (RFC 7617). A further scheme is a further variant of [`PresentedCredential`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::input_token::InputToken;

/// The longest header value that is read: a token, and a user name of the greatest length.
const MAX_HEADER: usize = 512;

/// A credential as presented. Nothing about it is verified.
#[derive(Debug)]
pub enum PresentedCredential {
    /// `Bearer <token>`.
    Bearer(InputToken),
    /// `Basic <base64 of name:token>`.
    Basic {
        /// The user, which must be the credential's name.
        user: String,
        /// The password.
        token: InputToken,
    },
}

impl PresentedCredential {
    /// Reads the values of the request's `Authorization` headers. There must be exactly one, of a
    /// known scheme, with a token of the right form.
    pub fn read<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let value = values.next()?;
        if values.next().is_some() || value.len() > MAX_HEADER {
            return None;
        }
        let (scheme, rest) = str::from_utf8(value).ok()?.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("bearer") {
            return InputToken::parse(rest).map(Self::Bearer);
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = Zeroizing::new(STANDARD.decode(rest).ok()?);
        let (user, token) = str::from_utf8(&decoded).ok()?.split_once(':')?;
        Some(Self::Basic {
            user: user.to_owned(),
            token: InputToken::parse(token)?,
        })
    }

    pub(super) fn token(&self) -> &InputToken {
        match self {
            Self::Bearer(token) | Self::Basic { token, .. } => token,
        }
    }

    /// Whether it states no other name than this one.
    pub(super) fn allows_name(&self, name: &str) -> bool {
        match self {
            Self::Bearer(_) => true,
            Self::Basic { user, .. } => user == name,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::PresentedCredential;
    use crate::inputs::secret_scan::TOKEN_PREFIX;

    fn read(values: &[&str]) -> Option<PresentedCredential> {
        PresentedCredential::read(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn both_schemes_are_read_and_nothing_else() {
        let token = format!("{TOKEN_PREFIX}{}", "A".repeat(43));
        let basic = |text: String| format!("Basic {}", STANDARD.encode(text));
        assert!(matches!(
            read(&[&format!("bearer {token}")]),
            Some(PresentedCredential::Bearer(_))
        ));
        assert!(matches!(
            read(&[&basic(format!("prod-eu:{token}"))]),
            Some(PresentedCredential::Basic { user, .. }) if user == "prod-eu"
        ));
        for wrong in [
            format!("Bearer {token} "),
            format!("Bearer  {token}"),
            format!("Bearer {token}A"),
            "Bearer ".to_owned(),
            "Bearer".to_owned(),
            String::new(),
            token.clone(),
            format!("Digest {token}"),
            format!("Basic {token}"),
            basic(token.clone()),
            basic(format!("prod-eu:{token}:")),
            format!("Basic {}", "A".repeat(600)),
        ] {
            assert!(read(&[&wrong]).is_none(), "{wrong}");
        }
        let bearer = format!("Bearer {token}");
        assert!(read(&[&bearer, &bearer]).is_none() && read(&[]).is_none());
    }

    #[test]
    fn a_debug_text_has_no_token() {
        let token = format!("{TOKEN_PREFIX}{}", "A".repeat(43));
        let text = format!("{:?}", read(&[&format!("Bearer {token}")]).unwrap());
        assert!(!text.contains("AAAA"), "{text}");
    }

    proptest! {
        /// A bounded fuzz run: any header ends.
        #[test]
        fn any_header_ends(value in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = PresentedCredential::read([value.as_slice()].into_iter());
            let value = [b"Basic ".as_slice(), STANDARD.encode(&value).as_bytes()].concat();
            let _ = PresentedCredential::read([value.as_slice()].into_iter());
        }
    }
}
