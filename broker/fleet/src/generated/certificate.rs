//! CA certificates with a chosen end. Their signature is none: nothing verifies it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
/// The base point of P-256 (SEC 2, section 2.4.2), which is a valid public key.
const POINT: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40,
    0xf2, 0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2,
    0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e,
    0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51,
    0xf5,
];

/// Makes a CA certificate in PEM that is valid from `begins` to `ends`.
pub fn authority_pem(name: &str, begins: Timestamp, ends: Timestamp) -> String {
    let algorithm = element(SEQUENCE, &element(OID, ECDSA_WITH_SHA256));
    let subject = distinguished_name(name);
    let constraints = element(SEQUENCE, &element(0x01, &[0xff]));
    let extension = [
        element(OID, BASIC_CONSTRAINTS),
        element(0x01, &[0xff]),
        element(OCTET_STRING, &constraints),
    ]
    .concat();
    let key = [
        element(
            SEQUENCE,
            &[element(OID, EC_PUBLIC_KEY), element(OID, P256)].concat(),
        ),
        bit_string(&POINT),
    ]
    .concat();
    let certificate = [
        element(0xa0, &element(INTEGER, &[2])),
        element(INTEGER, &[1]),
        algorithm.clone(),
        subject.clone(),
        element(SEQUENCE, &[time(begins), time(ends)].concat()),
        subject,
        element(SEQUENCE, &key),
        element(0xa3, &element(SEQUENCE, &element(SEQUENCE, &extension))),
    ]
    .concat();
    let signature = element(
        SEQUENCE,
        &[element(INTEGER, &[1]), element(INTEGER, &[1])].concat(),
    );
    let der = element(
        SEQUENCE,
        &[
            element(SEQUENCE, &certificate),
            algorithm,
            bit_string(&signature),
        ]
        .concat(),
    );
    let text = STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem.push_str("\n-----END CERTIFICATE-----\n");
    pem
}

fn distinguished_name(name: &str) -> Vec<u8> {
    let attribute = [
        element(OID, COMMON_NAME),
        element(UTF8_STRING, name.as_bytes()),
    ]
    .concat();
    element(SEQUENCE, &element(SET, &element(SEQUENCE, &attribute)))
}

/// A time by RFC 5280 section 4.1.2.5: two digits of the year until 2049, then four.
fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    match at.year() < 2050 {
        true => element(
            UTC_TIME,
            at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes(),
        ),
        false => element(
            GENERALIZED_TIME,
            at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes(),
        ),
    }
}

fn bit_string(bytes: &[u8]) -> Vec<u8> {
    let mut content = vec![0];
    content.extend(bytes);
    element(BIT_STRING, &content)
}

/// A DER element with its length (X.690, section 8.1.3).
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let [.., high, low] = content.len().to_be_bytes();
    match content.len() {
        0..=127 => bytes.push(low),
        128..=255 => bytes.extend([0x81, low]),
        _ => bytes.extend([0x82, high, low]),
    }
    bytes.extend(content);
    bytes
}
