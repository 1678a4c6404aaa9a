//! What to write in the place of a name or an address that cannot be used.

use url::Url;

/// What a server's address should be, if it lacks a scheme or is an international name.
pub(super) fn proposed_address(server: &str) -> Option<String> {
    if !server.contains("://") && !server.is_empty() {
        let url = Url::parse(&format!("https://{server}")).ok()?;
        return Some(url.as_str().trim_end_matches('/').to_owned());
    }
    if server.is_ascii() {
        return None;
    }
    let url = Url::parse(server).ok()?;
    (url.scheme() == "https").then(|| url.as_str().trim_end_matches('/').to_owned())
}

/// A name for the object, as close to that of the cluster as the rules for names allow.
pub(super) fn proposed_name(name: &str) -> Option<String> {
    let mut proposed = String::new();
    for letter in name.chars() {
        match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_lowercase() || letter.is_ascii_digit() => {
                proposed.push(letter);
            }
            _ if proposed.is_empty() || proposed.ends_with('-') => {}
            _ => proposed.push('-'),
        }
    }
    let short: String = proposed.chars().take(63).collect();
    Some(short.trim_matches('-').to_owned()).filter(|name| !name.is_empty())
}
