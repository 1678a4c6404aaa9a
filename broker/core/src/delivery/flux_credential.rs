//! The annotations of a ServiceAccount by which Flux 2.10 and newer choose the credential that they
//! get for it (Flux's RFC-0014). With a delivery of type FluxConfigMap, Flux is expected to use a
//! token of the hub.

use std::fmt;

/// Each annotation, with the one value that leads to a token of the hub.
const HUB_TOKEN_ANNOTATIONS: [(&str, &str); 2] = [
    ("credential.auth.fluxcd.io/provider", "kubernetes"),
    ("credential.auth.fluxcd.io/type", "jwt"),
];
/// The most characters of a value that are kept. Tenants write it, up to 256 KiB.
const MOST_CHARS: usize = 40;

/// An annotation with which Flux may get another credential than a token of the hub.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OtherFluxCredential {
    annotation: &'static str,
    value: String,
}

impl OtherFluxCredential {
    /// Whether an annotation has a part in this.
    pub fn is_read_from(annotation: &str) -> bool {
        HUB_TOKEN_ANNOTATIONS
            .iter()
            .any(|(key, _)| *key == annotation)
    }

    /// Finds the first such annotation. Without the annotations, Flux requests a token of the hub.
    pub fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        HUB_TOKEN_ANNOTATIONS.iter().find_map(|(key, of_the_hub)| {
            let value = annotation(key).filter(|value| value != of_the_hub)?;
            Some(Self {
                annotation: key,
                value: value.chars().take(MOST_CHARS).collect(),
            })
        })
    }
}

impl fmt::Display for OtherFluxCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the ServiceAccount has {}: {:?}, so Flux 2.10 and newer send no token of the hub; \
             remove the annotation, or use a delivery of type KubeConfigSecret",
            self.annotation, self.value
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::OtherFluxCredential;

    fn of(annotations: &[(&str, &str)]) -> Option<String> {
        let read = |key: &str| {
            let mut all = annotations.iter();
            all.find(|(name, _)| *name == key).map(|(_, value)| *value)
        };
        OtherFluxCredential::of(read).map(|other| other.to_string())
    }

    #[test]
    fn only_the_values_of_a_token_of_the_hub_are_well() {
        let (provider, kind) = (
            "credential.auth.fluxcd.io/provider",
            "credential.auth.fluxcd.io/type",
        );
        for well in [
            &[][..],
            &[(provider, "kubernetes")],
            &[(provider, "kubernetes"), (kind, "jwt")],
            &[("eks.amazonaws.com/role-arn", "spiffe")],
        ] {
            assert_eq!(of(well), None, "{well:?}");
        }
        for other in [
            &[(provider, "spiffe")][..],
            &[(provider, "Kubernetes")],
            &[(provider, "")],
            &[(kind, "x509")],
            &[(provider, "kubernetes"), (kind, "x509")],
        ] {
            let said = of(other).unwrap();
            let (key, value) = other.last().unwrap();
            assert!(said.contains(&format!("{key}: {value:?}")), "{said}");
        }
    }

    #[test]
    fn a_long_or_odd_value_stays_short_and_on_one_line() {
        let odd = "spiffe\n\u{1b}[31m".repeat(1000);
        let said = of(&[("credential.auth.fluxcd.io/provider", &odd)]).unwrap();
        assert!(
            said.len() < 400 && !said.contains(char::is_control),
            "{said}"
        );
    }
}
