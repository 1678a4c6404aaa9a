//! The floods: what each sends, and how often the server answers it with 200.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::flood::Way;
use super::ground::{FLOODER, Stage};
use crate::harness::Outcome;
use crate::harness::stage::{SELF, TENANT, exchange_request};

/// More than refusals are delayed at once, so that some are answered at once.
const CONNECTIONS: usize = 512;
/// Almost as many as four addresses may have.
const MOST_CONNECTIONS: usize = 1000;
/// As many of the shortest requests as one read of the server takes.
const TOGETHER: usize = 300;
/// Different tokens, so that no two of them share one check.
const FORGED_TOKENS: usize = 512;
/// More than are accepted in one flood.
const FRESH_TOKENS: usize = 3000;

/// One flood.
pub struct Plan {
    /// Its name in the tables.
    pub name: &'static str,
    /// What it does on each connection; `None` for the row without a flood.
    pub way: Option<Way>,
    /// The number of connections.
    pub connections: usize,
    /// Whether the server answers its first request with 200.
    pub is_granted: bool,
    /// Makes its requests.
    pub requests: fn(&Stage) -> Outcome<Vec<String>>,
}

impl Plan {
    const NONE: Self = Self {
        name: "no flood, for comparison",
        way: None,
        connections: 0,
        is_granted: false,
        requests: |_| Ok(Vec::new()),
    };
    const REFUSED: Self = Self {
        way: Some(Way::Requests),
        connections: CONNECTIONS,
        ..Self::NONE
    };
    const GRANTED: Self = Self {
        is_granted: true,
        ..Self::REFUSED
    };
}

/// All floods, and first two rows without one. They show how much two windows differ by themselves,
/// and what the program that sends a flood costs the cores that it shares.
pub static PLANS: [Plan; 14] = [
    Plan::NONE,
    Plan {
        name: "no flood, but its half a core",
        way: Some(Way::Computation),
        connections: 1,
        ..Plan::NONE
    },
    Plan {
        name: "anonymous: malformed requests",
        requests: |_| Ok(vec![exchange_request("grant_type=none")]),
        ..Plan::REFUSED
    },
    Plan {
        name: "anonymous: requests sent together",
        way: Some(Way::Together),
        requests: |_| {
            let request = |last| format!("GET / HTTP/1.1\r\nHost: a\r\n{last}\r\n");
            Ok(vec![
                request("").repeat(TOGETHER) + &request("Connection: close\r\n"),
            ])
        },
        ..Plan::REFUSED
    },
    Plan {
        name: "anonymous: malformed requests by HTTP/2",
        way: Some(Way::Streams),
        connections: MOST_CONNECTIONS,
        requests: |_| Ok(vec![exchange_request("grant_type=none")]),
        ..Plan::REFUSED
    },
    Plan {
        name: "anonymous: bad signatures",
        requests: |stage| forged(stage, |_, token| token.spoil_signature()),
        ..Plan::REFUSED
    },
    Plan {
        name: "anonymous: unknown kids",
        requests: |stage| forged(stage, |index, token| token.rename_key(index)),
        ..Plan::REFUSED
    },
    Plan {
        name: "anonymous: slow bodies (bytes)",
        way: Some(Way::SlowBodies),
        connections: MOST_CONNECTIONS,
        requests: |stage| Ok(vec![stage.exchange(FLOODER)?]),
        ..Plan::GRANTED
    },
    Plan {
        name: "anonymous: TLS handshakes",
        way: Some(Way::Handshakes),
        connections: 64,
        ..Plan::NONE
    },
    Plan {
        name: "known: denied by policy",
        requests: |stage| {
            let (own, other) = (format!("{FLOODER}%2F"), format!("{TENANT}%2F"));
            let request = stage.exchange(FLOODER)?;
            // The names have one length, so the length of the body stays.
            Ok(vec![request.replace(&own, &other)])
        },
        ..Plan::REFUSED
    },
    Plan {
        name: "known: valid exchanges",
        requests: |stage| Ok(vec![stage.exchange(FLOODER)?]),
        ..Plan::GRANTED
    },
    Plan {
        name: "known: fresh tokens",
        way: Some(Way::FreshRequests),
        requests: |stage| (0..FRESH_TOKENS).map(|_| stage.exchange(FLOODER)).collect(),
        ..Plan::GRANTED
    },
    Plan {
        name: "known: kubeconfigs",
        requests: |stage| {
            let request = stage.exchange(FLOODER)?;
            let token = Token::of_request(&request)?;
            Ok(vec![stage.kubeconfig_request(&token.text())])
        },
        ..Plan::GRANTED
    },
    Plan {
        name: "known: inputs",
        requests: |stage| Ok(vec![stage.inputs_request()]),
        ..Plan::GRANTED
    },
];

/// The parts of the token of an exchange.
struct Token<'a> {
    header: String,
    claims: &'a str,
    signature: String,
}

impl<'a> Token<'a> {
    /// The token of an exchange, which is the last parameter of its form.
    fn of_request(request: &'a str) -> Outcome<Self> {
        let (_, token) = request.rsplit_once('=').ok_or("the form has no token")?;
        let mut parts = token.split('.');
        let mut part = || parts.next().ok_or("the token has too few parts");
        Ok(Self {
            header: part()?.to_owned(),
            claims: part()?,
            signature: part()?.to_owned(),
        })
    }

    fn text(&self) -> String {
        format!("{}.{}.{}", self.header, self.claims, self.signature)
    }

    fn spoil_signature(&mut self) -> Outcome<()> {
        let mut bytes = URL_SAFE_NO_PAD.decode(&self.signature)?;
        let last = bytes.last_mut().ok_or("the token is not signed")?;
        *last ^= 1;
        self.signature = URL_SAFE_NO_PAD.encode(bytes);
        Ok(())
    }

    fn rename_key(&mut self, index: usize) -> Outcome<()> {
        let mut header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&self.header)?)?;
        let kid = header.get_mut("kid").ok_or("the token names no key")?;
        *kid = Value::from(format!("unknown-{index}"));
        self.header = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&header)?);
        Ok(())
    }
}

/// Exchanges with tokens that were changed after they were signed.
fn forged(
    stage: &Stage,
    change: impl Fn(usize, &mut Token<'_>) -> Outcome<()>,
) -> Outcome<Vec<String>> {
    let forge = |index| {
        let form = stage.ground.form(FLOODER, SELF, "warm")?;
        let mut token = Token::of_request(&form)?;
        let genuine = token.text();
        change(index, &mut token)?;
        Ok(exchange_request(&form.replace(&genuine, &token.text())))
    };
    (0..FORGED_TOKENS).map(forge).collect()
}
