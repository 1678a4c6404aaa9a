//! Finds secrets in a text by what stands beside them: a line `word: rest` whose word is the name
//! of a secret, a URL with a password, and a token whose system begins all of its tokens alike.
//!
//! Each function reads its text once, and compares only a bounded number of characters at each
//! place, so the time grows with the length of the text and not with its square.

/// The longest word that is judged as a name.
const MAX_WORD: usize = 64;
/// What ends a member of a text: a line, or a member of a flow mapping or of a connection string.
const ENDS_OF_MEMBERS: [char; 9] = ['\n', '\r', '{', '}', '[', ']', ',', ';', '&'];
/// The lines in which a `value` belongs to the `name` before it.
const LINES_OF_A_PAIR: usize = 3;

/// How a system begins its tokens, and how many letters and digits follow at least. One of these
/// must be an upper-case letter if the beginning could also be that of an object's name: tenants
/// choose such names, and must not be able to block the lists that contain them.
const TOKEN_PREFIXES: [(&str, usize, bool); 37] = [
    // AWS.
    ("AKIA", 16, false),
    ("ASIA", 16, false),
    // GitHub.
    ("ghp_", 30, false),
    ("gho_", 30, false),
    ("ghu_", 30, false),
    ("ghs_", 30, false),
    ("ghr_", 30, false),
    ("github_pat_", 22, false),
    // GitLab.
    ("glpat-", 20, true),
    ("gldt-", 20, true),
    ("glrt-", 20, true),
    ("glptt-", 20, true),
    ("glcbt-", 20, true),
    ("glsoat-", 20, true),
    // Slack.
    ("xoxa-", 10, true),
    ("xoxb-", 10, true),
    ("xoxe-", 10, true),
    ("xoxp-", 10, true),
    ("xoxr-", 10, true),
    ("xoxs-", 10, true),
    ("xapp-", 10, true),
    // Stripe.
    ("sk_live_", 16, false),
    ("rk_live_", 16, false),
    ("sk_test_", 16, false),
    ("whsec_", 16, false),
    // Google.
    ("AIza", 30, false),
    ("GOCSPX-", 20, false),
    ("ya29.", 20, true),
    // HashiCorp Vault and OpenBao.
    ("hvs.", 20, true),
    ("hvb.", 20, true),
    ("hvr.", 20, true),
    // npm, PyPI, Docker Hub, DigitalOcean, SendGrid, Shopify.
    ("npm_", 30, false),
    ("pypi-AgEI", 20, false),
    ("dckr_pat_", 20, false),
    ("dop_v1_", 30, false),
    ("SG.", 20, false),
    ("shpat_", 20, false),
];

/// Whether the text has a token with a known beginning.
pub(super) fn has_known_token(text: &str) -> bool {
    let in_token = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    TOKEN_PREFIXES.iter().any(|(start, length, upper)| {
        text.match_indices(start).any(|(at, _)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let rest = text.get(at + start.len()..).unwrap_or_default();
            let rest: Vec<char> = rest.chars().take(*length).take_while(in_token).collect();
            before.is_none_or(|before| !before.is_ascii_alphanumeric())
                && rest.len() == *length
                && (!upper || rest.iter().any(char::is_ascii_uppercase))
        })
    })
}

/// Whether the text has a URL with a password, such as `postgres://user:password@host`.
pub(super) fn has_url_with_password(text: &str) -> bool {
    text.match_indices("://").any(|(at, found)| {
        let rest = text.get(at + found.len()..).unwrap_or_default();
        let ends =
            |c: char| matches!(c, '/' | '?' | '#' | '"' | '\'' | '`' | '<') || c.is_whitespace();
        let authority = rest.split(ends).next().unwrap_or_default();
        let password = authority
            .rsplit_once('@')
            .and_then(|(user, _)| user.split_once(':'));
        password.is_some_and(|(_, password)| is_value(password))
    })
}

/// Whether the text has a line or a member whose word is the name of a secret by `is_name`. The
/// text may be YAML, JSON, a file of variables, or a part of one.
pub(super) fn has_named_value(text: &str, is_name: impl Fn(&str) -> bool) -> bool {
    let structured = text.contains(['\n', '{']);
    let mut pair = Pair::default();
    text.split_inclusive(ENDS_OF_MEMBERS).any(|part| {
        let member = part.trim_end_matches(ENDS_OF_MEMBERS);
        let by_colon = structured && pair.is_secret_member(member, &is_name);
        if part.ends_with(['{', '}']) {
            pair = Pair::default();
        }
        by_colon || has_assignment(member.trim(), &is_name)
    })
}

/// The name and the value of one entry, as in the `env` of a container, on lines of their own.
#[derive(Default)]
struct Pair {
    /// How many further lines belong to a name of a secret.
    lines_of_name: usize,
    /// How many further lines belong to a value that stood before its name.
    lines_of_value: usize,
}

impl Pair {
    /// Takes the next member, and returns whether it is a secret by its own name, or completes the
    /// pair of one.
    fn is_secret_member(&mut self, member: &str, is_name: impl Fn(&str) -> bool) -> bool {
        if member.trim_start().starts_with("- ") {
            *self = Self::default();
        }
        let (Some(word), rest) = split_member(member) else {
            return false;
        };
        self.lines_of_name = self.lines_of_name.saturating_sub(1);
        self.lines_of_value = self.lines_of_value.saturating_sub(1);
        if is_name_member(word) {
            let name = unquoted(rest);
            let is_secret = name.len() <= MAX_WORD && is_name(name);
            self.lines_of_name = if is_secret { LINES_OF_A_PAIR } else { 0 };
        } else if is_value_member(word) && is_value(rest) {
            self.lines_of_value = LINES_OF_A_PAIR;
        } else {
            return is_value(rest) && is_name(word);
        }
        self.lines_of_name > 0 && self.lines_of_value > 0
    }
}

/// Whether a member of this name holds the name of an entry.
pub(super) fn is_name_member(name: &str) -> bool {
    [
        "name",
        "key",
        "variable",
        "parameter",
        "parametername",
        "header",
        "field",
    ]
    .iter()
    .any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a member of this name holds the value of an entry.
pub(super) fn is_value_member(name: &str) -> bool {
    [
        "value",
        "val",
        "default",
        "defaultvalue",
        "stringvalue",
        "parametervalue",
        "content",
    ]
    .iter()
    .any(|known| name.eq_ignore_ascii_case(known))
}

/// Splits `word: rest` and `"word": "rest"`; no word if something else stands before the colon.
fn split_member(part: &str) -> (Option<&str>, &str) {
    let Some((word, rest)) = part.split_once(':') else {
        return (None, "");
    };
    let word = unquoted(word.trim().trim_start_matches(['-', '?', ' ']));
    let quoted = word.len() < part.len() && part.contains('"');
    let fits = is_word(word) && (quoted || rest.is_empty() || rest.starts_with([' ', '\t']));
    (fits.then_some(word), rest)
}

/// Whether a word is assigned a value, as in `PASSWORD=x`, `--token=x` or `password = "x"`.
fn has_assignment(part: &str, is_name: impl Fn(&str) -> bool) -> bool {
    part.match_indices('=').any(|(at, _)| {
        let before = part.get(..at).unwrap_or_default();
        let rest = part.get(at + 1..).unwrap_or_default();
        // A comparison, and the end of base64.
        if rest.starts_with(['=', '~']) || before.ends_with(['=', '!', '<', '>']) {
            return false;
        }
        let spaced = before.ends_with([' ', '\t']);
        let word = last_word(before.trim_end_matches([' ', '\t']));
        let begins = before.trim().len() == word.len();
        let rest = text_beginning(if spaced { rest.trim_start() } else { rest });
        let value = rest.split_whitespace().next().unwrap_or_default();
        let adjacent = !rest.starts_with(|c: char| c.is_whitespace());
        (!spaced || begins) && adjacent && is_value(value) && is_word(word) && is_name(word)
    })
}

/// The first characters of a text, which are enough to see whether it is a value.
fn text_beginning(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_WORD).map(|(at, _)| at);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// The characters of a name at the end of a text; empty if they are too many.
fn last_word(text: &str) -> &str {
    let characters = text.bytes().rev().take(MAX_WORD + 1);
    let length = characters.take_while(|byte| is_word_byte(*byte)).count();
    let word = text.get(text.len() - length..).unwrap_or_default();
    if length > MAX_WORD {
        ""
    } else {
        word.trim_start_matches('-')
    }
}

fn is_word(word: &str) -> bool {
    (1..=MAX_WORD).contains(&word.len()) && word.bytes().all(is_word_byte)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// The text without quotes, as they are written in JSON inside a text too.
fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'', '\\', '`', ' '])
}

/// Whether this is a value, and not nothing, a switch, or a place where a value is put in later.
fn is_value(rest: &str) -> bool {
    let value = unquoted(rest);
    let nothing = ["", "null", "~", "true", "false", "yes", "no", "on", "off"];
    // A comment, and an alias.
    let is_yaml = rest.trim_start().starts_with(['#', '*']);
    let variable = value.strip_prefix('$').is_some_and(|name| {
        name.is_empty() || name.starts_with(|c: char| "({_".contains(c) || c.is_ascii_uppercase())
    });
    let template = value.starts_with("{{") || value.starts_with('<');
    !nothing.iter().any(|word| value.eq_ignore_ascii_case(word))
        && !is_yaml
        && !variable
        && !template
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use crate::inputs::secret_scan::{SecretKind, scan_for_secrets};

    fn kind(value: Value) -> Option<SecretKind> {
        scan_for_secrets(&json!([{ "id": "a", "x": value }]))
            .err()
            .map(|found| found.kind)
    }

    /// Joined here, so that no scanner of repositories takes this file for a leak.
    fn token(start: &str, rest: &str) -> String {
        format!("{start}{}", rest.repeat(40 / rest.len()))
    }

    #[test]
    fn an_entry_with_a_name_and_a_value_is_judged_by_its_name() {
        for secret in [
            json!({ "name": "DB_PASSWORD", "value": "x" }),
            json!({ "value": "x", "name": "DB_PASSWORD" }),
            json!([{ "name": "A", "value": "b" }, { "name": "api-token", "value": 7 }]),
            json!({ "key": "clientSecret", "value": "x" }),
            json!({ "Key": "clientSecret", "Value": "x" }),
            json!({ "name": "token", "default": "x" }),
            json!({ "name": "password", "value": { "nested": "x" } }),
            json!(["--password", "x"]),
            json!(["--user", "a", "--api-key", "x"]),
        ] {
            assert_eq!(kind(secret.clone()), Some(SecretKind::Name), "{secret}");
        }
        for harmless in [
            json!({ "name": "DB_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "db", "key": "password" } } }),
            json!({ "name": "DB_PASSWORD", "value": "" }),
            json!({ "name": "DB_HOST", "value": "db.example.com" }),
            json!({ "name": "token", "enabled": true }),
            json!({ "automountServiceAccountToken": false, "imagePullSecrets": ["regcred"] }),
            json!({ "existingSecret": "db" }),
            json!(["--token", "--verbose"]),
            json!(["password", "x"]),
        ] {
            assert_eq!(kind(harmless.clone()), None, "{harmless}");
        }
    }

    #[test]
    fn a_text_is_judged_by_the_words_of_its_lines() {
        let secrets = [
            "admin:\n  password: x",
            "admin:\n  password: 'x y'\n",
            "a: b\r\nDB_PASSWORD: x\r\n",
            "{\"admin\":{\"password\":\"x\"}}",
            "{admin: {password: x}}",
            "{\"a\":\"{\\\"token\\\":\\\"x\\\"}\"}",
            "env:\n- name: DB_PASSWORD\n  value: x\n",
            "env:\n  - value: x\n    name: DB_PASSWORD\n",
            "{\"env\":[{\"name\":\"A\",\"value\":\"b\"},{\"name\":\"DB_PASSWORD\",\"value\":\"x\"}]}",
            "{\n  \"name\": \"DB_PASSWORD\",\n  \"value\": \"x\"\n}",
            "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user:\n    token: abc\n",
            "users:\n- user: {client-key-data: abc}\n",
            "A=b\nDB_PASSWORD=x\n",
            "export API_TOKEN=x",
            "host=db user=a password=x",
            "--token=x",
            "password = \"x\"",
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=x",
            "https://api.example.com/?token=x",
            "password: |\n  several lines\n",
        ];
        for text in secrets {
            assert_eq!(kind(json!(text)), Some(SecretKind::NameInText), "{text}");
            let encoded = STANDARD.encode(format!("version: 1\nTag: Zulu\n{text}"));
            assert!(
                kind(json!({ "data": { "values.yaml": encoded } })).is_some(),
                "{text}"
            );
        }
        for text in [
            "replicas: 2\nimage: registry.example.com/a:v1\n",
            "env:\n- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: db\n      key: password\n- name: A\n  value: b\n",
            "env:\n- name: A\n  value: b\n- name: DB_PASSWORD\n  valueFrom: {secretKeyRef: {name: db, key: password}}\n",
            "[{\"name\":\"A\",\"value\":\"b\"},{\"name\":\"DB_PASSWORD\",\"valueFrom\":{}}]",
            "password: ${DB_PASSWORD}\ntoken: {{ .Values.token }}\nsecret:\n",
            "automountServiceAccountToken: false\nimagePullSecrets: [{name: regcred}]\n",
            "secretRef:\n  name: db\ntokenLifetime: 1h\n",
            "password: {secretKeyRef: {name: db}}",
            "claims.token == 'x' && request.password != 'y'",
            "Password rules are in the wiki.",
            "tls-private-key-file=/a/tls.key",
            "-----BEGIN CERTIFICATE-----\nMIIB==\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(kind(json!(text)), None, "{text}");
        }
    }

    #[test]
    fn a_url_with_a_password_is_found_and_one_without_is_not() {
        for url in [
            "postgres://user:hunter2@db.example.com/x",
            "redis://:hunter2@cache:6379",
            "see https://a:b@c.example.com, please",
            "oci://u:p%40w@registry.example.com",
        ] {
            assert_eq!(kind(json!(url)), Some(SecretKind::UrlPassword), "{url}");
        }
        for url in [
            "https://example.com:8443/@scope/package",
            "ssh://git@github.com/org/repo",
            "git@github.com:org/repo.git",
            "https://example.com/?mail=a:b@c",
            "postgres://user@db/x",
            "postgres://user:${PASSWORD}@db/x",
            "postgres://user:@db/x",
        ] {
            assert_eq!(kind(json!(url)), None, "{url}");
        }
    }

    #[test]
    fn the_tokens_of_well_known_systems_are_found() {
        for token in [
            token("AKIA", "ABCD1234"),
            token("ASIA", "ABCD1234"),
            token("ghp_", "aB3d"),
            token("gho_", "aB3d"),
            token("ghs_", "aB3d"),
            token("github_pat_", "aB3_"),
            token("glpat-", "aB3-"),
            token("xoxb-", "123-aB"),
            token("xoxp-", "123-aB"),
            token("sk_live_", "aB3d"),
            token("AIza", "Sy_B"),
            token("hvs.", "CAES"),
            token("npm_", "aB3d"),
            token("SG.", "aB3."),
        ] {
            for text in [token.clone(), format!("x {token}, y"), format!("a:{token}")] {
                assert_eq!(kind(json!(text)), Some(SecretKind::KnownToken), "{text}");
            }
            let data = json!({ "data": { "x": STANDARD.encode(&token) } });
            assert_eq!(kind(data), Some(SecretKind::KnownToken), "{token}");
        }
        for text in [
            "AKIA",
            "ghp_short",
            "MAKIAABCDEFGHIJKLMNOP",
            "hvs.example.com",
            "sk_live_x",
        ] {
            assert_eq!(kind(json!(text)), None, "{text}");
        }
    }

    /// With a time that grows as the square of the length, this test would run for hours.
    #[test]
    fn long_texts_that_begin_like_secrets_everywhere_are_searched_at_once() {
        for text in [
            "a=".repeat(400_000),
            "a = ".repeat(200_000),
            format!("{}{}", " ".repeat(400_000), "a= ".repeat(100_000)),
            "password".repeat(100_000) + "\n",
            "password=".to_owned() + &"=".repeat(800_000),
            "name: password\n".repeat(50_000),
            "a: b\n".repeat(150_000),
            "://".repeat(250_000),
            "://a:".repeat(150_000),
            "ghp.".repeat(200_000),
            "hvs.".repeat(200_000),
            "SG.é".repeat(150_000),
            "{\"".repeat(400_000),
            "\\\"".repeat(400_000) + ":",
        ] {
            assert_eq!(kind(json!(text)), None, "{}", text.get(..20).unwrap());
        }
    }

    proptest! {
        /// Tenants choose the names of objects, and must not be able to block the lists that
        /// contain them.
        #[test]
        fn no_name_of_an_object_is_a_token(
            start in "(glpat-|xoxb-|hvs.|hvb.|ya29.|akia|npm-|password|token-|[a-z])",
            rest in "[a-z0-9.-]{0,200}",
        ) {
            let name = start + &rest;
            prop_assert_eq!(scan_for_secrets(&json!([{ "id": &name, "names": [&name, &name], "n": name }])), Ok(()));
        }

        #[test]
        fn any_text_is_searched(text in "[ -~\\n]{0,300}") {
            let _ = kind(json!({ "name": &text, "value": [&text, &text] }));
            let inside = format!("{text}\npassword: hunter2\n{text}");
            prop_assert!(kind(json!(inside)).is_some());
        }
    }
}
