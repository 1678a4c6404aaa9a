//! The table of client certificates.

use jiff::Timestamp;
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{ExtendedKeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose as Usage,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, PKCS_RSA_SHA256, SanType,
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::{
    Authorities, Case, OTHER_URI, Outcome, TestAuthority, TestCertificate, URI, client, named,
    names, raw_names, valid,
};
use crate::caller_certificate::CallerCertificateError as E;

const URI_NAME: u8 = 0x86;
const DNS_NAME: u8 = 0x82;
const EMAIL: u8 = 0x81;

/// Every kind of client certificate, valid at `now` unless that is the point.
pub fn table(authorities: &Authorities, now: Timestamp) -> Vec<Case> {
    let Authorities { first, second } = authorities;
    let table = Table { first, second, now };
    let mut cases = table.accepted();
    cases.extend(table.other_uris());
    cases.extend(table.other_names());
    cases.extend(table.validity_and_usage());
    cases.extend(table.other_signers());
    cases.extend(table.intermediates());
    cases.extend(table.damaged());
    cases.extend(table.made_with_openssl());
    cases.extend(table.without_handshake());
    cases
}

struct Table<'a> {
    first: &'a TestAuthority,
    second: &'a TestAuthority,
    now: Timestamp,
}

fn case(name: &'static str, outcome: Outcome, certificate: TestCertificate) -> Case {
    Case {
        name,
        certificate,
        outcome,
    }
}

fn accepted(name: &'static str, certificate: TestCertificate) -> Case {
    case(name, Outcome::Accepted, certificate)
}

fn refused(name: &'static str, fault: E, certificate: TestCertificate) -> Case {
    case(name, Outcome::Refused(fault), certificate)
}

fn no_handshake(name: &'static str, certificate: TestCertificate) -> Case {
    case(name, Outcome::NoHandshake, certificate)
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

impl Table<'_> {
    fn good(&self) -> TestCertificate {
        self.first.issue(URI, |_| {})
    }

    fn with(&self, change: impl FnOnce(&mut CertificateParams)) -> TestCertificate {
        self.first.issue(URI, change)
    }

    fn accepted(&self) -> Vec<Case> {
        let of_key = |key: KeyPair| self.first.issue_for(key, URI, |_| {});
        let first_intermediate = self.first.intermediate("one", |_| {});
        let two = first_intermediate.intermediate("two", |_| {});
        let three = two.intermediate("three", |_| {});
        let mut with_root = self.good();
        with_root.chain.push(self.first.der.clone());
        let mut with_stranger = self.good();
        with_stranger.chain.push(self.second.der.clone());
        let mut reordered = two.issue(URI, |_| {});
        reordered.chain.swap(1, 2);
        let day = self.with(|params| valid(params, self.now, -3600, 86_400 - 3600));
        let admin = self.with(|params| {
            let user = "system:serviceaccount:tenant-b:admin";
            let masters = (DnType::OrganizationName, "system:masters");
            named(params, &[(DnType::CommonName, user), masters]);
        });
        let mixed = self.with(|params| {
            let email = SanType::Rfc822Name("a@example.com".try_into().unwrap());
            params.subject_alt_names.insert(0, email);
            let address = SanType::IpAddress([192, 0, 2, 1].into());
            params.subject_alt_names.push(address);
        });
        let with_usage = |usage| self.with(|params| params.extended_key_usages.push(usage));
        let no_usage = self.with(|params| params.key_usages.clear());
        let dns_too = self.with(|params| params.subject_alt_names.push(dns("a.example.com")));
        let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        vec![
            accepted("plain", self.good()),
            accepted("valid for exactly 24 hours", day),
            accepted("no key usage", no_usage),
            accepted("serverAuth too", with_usage(Usage::ServerAuth)),
            accepted("any usage too", with_usage(Usage::Any)),
            accepted("a DNS name too", dns_too),
            accepted("an address and an email too", mixed),
            accepted("the CN of an admin and O system:masters", admin),
            accepted("no subject", self.with(|params| named(params, &[]))),
            accepted("an intermediate", first_intermediate.issue(URI, |_| {})),
            accepted("two intermediates", two.issue(URI, |_| {})),
            accepted("three intermediates", three.issue(URI, |_| {})),
            accepted("intermediates in another order", reordered),
            accepted("the root in the chain", with_root),
            accepted("a stray CA in the chain", with_stranger),
            accepted("a key of RSA 2048", of_key(rsa_key())),
            accepted("a key on P-384", of_key(p384)),
            accepted("a key of Ed25519", of_key(ed25519)),
        ]
    }

    /// URIs that a careless comparison takes for that of the rule.
    fn other_uris(&self) -> Vec<Case> {
        let replaced = |from: &str, to: &str| URI.replace(from, to).into_bytes();
        let after = |text: &str| format!("{URI}{text}").into_bytes();
        let cases = [
            ("another account", replaced("reconciler", "other")),
            ("another namespace", replaced("tenant-a", "tenant-b")),
            ("an upper-case host", replaced("example", "EXAMPLE")),
            ("an upper-case scheme", replaced("spiffe", "SPIFFE")),
            ("an upper-case path", replaced("reconciler", "Reconciler")),
            ("a slash at the end", after("/")),
            ("a dot at the end", after(".")),
            ("a dot after the host", replaced(".com", ".com.")),
            (
                "a percent-encoded letter",
                replaced("reconciler", "%72econciler"),
            ),
            ("a percent-encoded slash", replaced("/sa/", "%2Fsa%2F")),
            ("a path with dots", replaced("/sa/", "/x/../sa/")),
            ("two slashes", replaced("/sa/", "//sa/")),
            ("a port", replaced(".com", ".com:443")),
            ("a user", replaced("://", "://a@")),
            ("a query", after("?a")),
            ("a fragment", after("#a")),
            ("a space before it", replaced("spiffe", " spiffe")),
            ("a line feed after it", after("\n")),
            ("a null byte after it", after("\0")),
            ("a null byte and more after it", after("\0.example.org")),
            ("its beginning", replaced("reconciler", "reconcile")),
            ("more after it", after("x")),
            ("an empty URI", Vec::new()),
            ("a pattern", b"spiffe://example.com/*".to_vec()),
        ];
        let refuse = |(name, text): (&'static str, Vec<u8>)| {
            let certificate = self.with(|params| raw_names(params, names(&[(URI_NAME, &text)])));
            refused(name, E::OtherUri, certificate)
        };
        cases.into_iter().map(refuse).collect()
    }

    fn other_names(&self) -> Vec<Case> {
        let raw = |entries: &[(u8, &[u8])]| self.with(|params| raw_names(params, names(entries)));
        let other_last = self.with(|params| params.subject_alt_names.push(uri(OTHER_URI)));
        let other_first = self.with(|params| params.subject_alt_names.insert(0, uri(OTHER_URI)));
        let twice = self.with(|params| params.subject_alt_names.push(uri(URI)));
        let only_cn = self.with(|params| {
            params.subject_alt_names.clear();
            named(params, &[(DnType::CommonName, URI)]);
        });
        let two_extensions = self.with(|params| {
            let der = names(&[(URI_NAME, OTHER_URI.as_bytes())]);
            let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], der);
            params.custom_extensions.push(extension);
        });
        let own = URI.as_bytes();
        vec![
            refused("two URIs, the right one first", E::SeveralUris, other_last),
            refused("two URIs, the right one last", E::SeveralUris, other_first),
            refused("the same URI twice", E::SeveralUris, twice),
            refused("only a CN", E::NoUri, only_cn),
            refused("the URI as a DNS name", E::NoUri, raw(&[(DNS_NAME, own)])),
            refused("the URI as an email", E::NoUri, raw(&[(EMAIL, own)])),
            refused("no alternative name at all", E::NoUri, raw(&[])),
            refused(
                "a URI that is no text",
                E::NoUri,
                raw(&[(URI_NAME, b"a://\xff")]),
            ),
            refused(
                "a URI that is no text beside the right one",
                E::NoUri,
                raw(&[(URI_NAME, own), (URI_NAME, b"\xff")]),
            ),
            no_handshake("two extensions with names", two_extensions),
        ]
    }

    fn validity_and_usage(&self) -> Vec<Case> {
        let from_to = |from, to| self.with(|params| valid(params, self.now, from, to));
        let used_for =
            |usages: &[Usage]| self.with(|params| params.extended_key_usages = usages.to_vec());
        let encipherment =
            self.with(|params| params.key_usages = vec![KeyUsagePurpose::KeyEncipherment]);
        let ca = self.with(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        vec![
            refused(
                "a second over 24 hours",
                E::TooLong,
                from_to(-3600, 86_401 - 3600),
            ),
            refused("valid for a year", E::TooLong, from_to(-3600, 86_400 * 365)),
            refused("expired a minute ago", E::Expired, from_to(-3600, -60)),
            refused("valid in an hour", E::NotYetValid, from_to(3600, 7200)),
            refused("it ends before it begins", E::Expired, from_to(-60, -120)),
            refused("no extended key usage", E::NoClientAuth, used_for(&[])),
            refused(
                "only serverAuth",
                E::NoClientAuth,
                used_for(&[Usage::ServerAuth]),
            ),
            refused("only any usage", E::NoClientAuth, used_for(&[Usage::Any])),
            refused(
                "only code signing",
                E::NoClientAuth,
                used_for(&[Usage::CodeSigning]),
            ),
            refused("no digitalSignature", E::NoDigitalSignature, encipherment),
            refused("a CA with the URI", E::IsAuthority, ca),
        ]
    }

    fn other_signers(&self) -> Vec<Case> {
        let stranger = TestAuthority::new("strangers", self.now, |_| {});
        let namesake = TestAuthority::new("callers", self.now, |_| {});
        let self_signed = |subject: &str| {
            let mut params = client(self.now, URI);
            named(&mut params, &[(DnType::CommonName, subject)]);
            let key = KeyPair::generate().unwrap();
            TestCertificate {
                chain: vec![params.self_signed(&key).unwrap().der().clone()],
                key: key.serialize_der(),
            }
        };
        let brief = TestAuthority::new("callers", self.now, |params| {
            valid(params, self.now, -60, 3540);
            params.subject_alt_names = vec![uri(URI)];
            params.extended_key_usages = vec![Usage::ClientAuth];
            params.key_usages.push(KeyUsagePurpose::DigitalSignature);
        });
        let mut with_root = namesake.issue(URI, |_| {});
        with_root.chain.push(self.first.der.clone());
        let other = |name, certificate| refused(name, E::OtherAuthority, certificate);
        vec![
            other("another CA", stranger.issue(URI, |_| {})),
            other("another CA of the same name", namesake.issue(URI, |_| {})),
            other("another CA of the same name, with the right one", with_root),
            other("the CA of another rule", self.second.issue(URI, |_| {})),
            other(
                "the URI of another CA's rule",
                self.first.issue(OTHER_URI, |_| {}),
            ),
            other("self-signed", self_signed("client")),
            other("self-signed in the name of the CA", self_signed("callers")),
            refused("the CA itself", E::TooLong, self.first.itself()),
            refused(
                "a short-lived CA of that name",
                E::IsAuthority,
                brief.itself(),
            ),
        ]
    }

    fn intermediates(&self) -> Vec<Case> {
        let under = |change: &dyn Fn(&mut CertificateParams)| {
            self.first.intermediate("issuing", |params| change(params))
        };
        let mut missing = under(&|_| {}).issue(URI, |_| {});
        missing.chain.truncate(1);
        let expired = under(&|params| valid(params, self.now, -86_400, -60));
        let no_ca = under(&|params| params.is_ca = IsCa::NoCa);
        let explicit_no_ca = under(&|params| params.is_ca = IsCa::ExplicitNoCa);
        let servers = under(&|params| params.extended_key_usages = vec![Usage::ServerAuth]);
        let last = under(&|params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
        let below = last.intermediate("below", |_| {});
        let constrained = under(&|params| {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName("example.org".to_owned())],
                excluded_subtrees: Vec::new(),
            });
        });
        let other_dns = constrained.issue(URI, |params| {
            params.subject_alt_names.push(dns("a.example.com"))
        });
        let uri_constrained = under(&|params| {
            // permittedSubtrees with one GeneralSubtree, whose base is the URI ".example.org".
            let mut der = vec![0x30, 0x12, 0xa0, 0x10, 0x30, 0x0e, URI_NAME, 0x0c];
            der.extend_from_slice(b".example.org");
            let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], der);
            extension.set_criticality(true);
            params.custom_extensions.push(extension);
        });
        let of_second = self.second.intermediate("issuing", |_| {});
        let other = |name, certificate| refused(name, E::OtherAuthority, certificate);
        let by = |authority: &TestAuthority| authority.issue(URI, |_| {});
        vec![
            other("the intermediate is missing", missing),
            other("an intermediate that is no CA", by(&no_ca)),
            other(
                "an intermediate that says that it is no CA",
                by(&explicit_no_ca),
            ),
            other("an expired intermediate", by(&expired)),
            other("an intermediate too deep", by(&below)),
            other("an intermediate of the other rule's CA", by(&of_second)),
            other("an intermediate for servers only", by(&servers)),
            other("a DNS name outside of the name constraints", other_dns),
            other(
                "a URI outside of the name constraints",
                by(&uri_constrained),
            ),
        ]
    }

    fn damaged(&self) -> Vec<Case> {
        let edited = |mut certificate: TestCertificate, edit: &dyn Fn(&mut Vec<u8>)| {
            let mut der = certificate.chain[0].to_vec();
            edit(&mut der);
            certificate.chain[0] = CertificateDer::from(der);
            certificate
        };
        let signature = edited(self.good(), &|der| *der.last_mut().unwrap() ^= 1);
        let similar = self
            .first
            .issue(&URI.replace("reconciler", "rEconciler"), |_| {});
        let renamed = edited(similar, &|der| {
            let mut windows = der.windows(10);
            let at = windows.position(|bytes| bytes == b"rEconciler").unwrap();
            der[at + 1] = b'e';
        });
        let other = |name, certificate| refused(name, E::OtherAuthority, certificate);
        vec![
            other("another signature", signature),
            other("a URI that was changed after it was signed", renamed),
        ]
    }

    fn without_handshake(&self) -> Vec<Case> {
        let of_bytes = |bytes: Vec<u8>| TestCertificate {
            chain: vec![CertificateDer::from(bytes)],
            key: self.good().key,
        };
        let good = self.good();
        let trailing = TestCertificate {
            chain: vec![CertificateDer::from(
                [good.chain[0].as_ref(), &[0]].concat(),
            )],
            key: good.key,
        };
        let mut other_key = self.good();
        other_key.key = self.good().key;
        let mut five = self.good();
        five.chain.extend(vec![self.second.der.clone(); 4]);
        let with_extension = |content: Vec<u8>, critical: bool| {
            self.with(|params| {
                let id = [1, 3, 6, 1, 4, 1, 55_555, 1];
                let mut extension = CustomExtension::from_oid_content(&id, content);
                extension.set_criticality(critical);
                params.custom_extensions.push(extension);
            })
        };
        vec![
            no_handshake("garbage", of_bytes(vec![0x30; 300])),
            no_handshake("text", of_bytes(URI.as_bytes().to_vec())),
            no_handshake("a byte after the certificate", trailing),
            no_handshake("the key of another certificate", other_key),
            no_handshake("five certificates", five),
            no_handshake("more than 8 KiB", with_extension(vec![4; 9000], false)),
            no_handshake(
                "an unknown critical extension",
                with_extension(vec![5, 0], true),
            ),
        ]
    }

    /// What current libraries do not make.
    fn made_with_openssl(&self) -> Vec<Case> {
        let key = PKey::private_key_from_pkcs8(&self.first.issuer.key().serialize_der()).unwrap();
        let authority = X509::from_der(&self.first.der).unwrap();
        let made = |version: i32, hash: MessageDigest, own: PKey<Private>| {
            let mut builder = X509Builder::new().unwrap();
            builder.set_version(version).unwrap();
            let serial = BigNum::from_u32(7).unwrap().to_asn1_integer().unwrap();
            builder.set_serial_number(&serial).unwrap();
            let mut subject = X509NameBuilder::new().unwrap();
            subject.append_entry_by_text("CN", "client").unwrap();
            builder.set_subject_name(&subject.build()).unwrap();
            builder.set_issuer_name(authority.subject_name()).unwrap();
            let at = |seconds: i64| Asn1Time::from_unix(self.now.as_second() + seconds).unwrap();
            builder.set_not_before(&at(-60)).unwrap();
            builder.set_not_after(&at(3540)).unwrap();
            builder.set_pubkey(&own).unwrap();
            if version == 2 {
                let usage = ExtendedKeyUsage::new().client_auth().build().unwrap();
                builder.append_extension(usage).unwrap();
                let context = builder.x509v3_context(Some(&authority), None);
                let names = SubjectAlternativeName::new().uri(URI).build(&context);
                builder.append_extension(names.unwrap()).unwrap();
            }
            builder.sign(&key, hash).unwrap();
            TestCertificate {
                chain: vec![CertificateDer::from(builder.build().to_der().unwrap())],
                key: own.private_key_to_pkcs8().unwrap(),
            }
        };
        let own = |bits| PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap();
        let (sha256, sha1) = (MessageDigest::sha256, MessageDigest::sha1());
        let short = made(2, sha256(), own(1024));
        vec![
            accepted("made with OpenSSL", made(2, sha256(), own(2048))),
            refused(
                "signed with SHA-1",
                E::OtherAuthority,
                made(2, sha1, own(2048)),
            ),
            no_handshake("version 1", made(0, sha256(), own(2048))),
            case(
                "a key of RSA 1024",
                Outcome::RefusedWithoutTls(E::WeakKey),
                short,
            ),
        ]
    }
}

fn rsa_key() -> KeyPair {
    let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    let der = PrivatePkcs8KeyDer::from(key.private_key_to_pkcs8().unwrap());
    KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_RSA_SHA256).unwrap()
}
