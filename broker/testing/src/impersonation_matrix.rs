//! A table of impersonating requests that every target must answer alike.
//!
//! A cell is a requestor, the user that it wants to be, and a request. [`RBAC`] gives the
//! requestors their rights. [`answers`] asks a server about all cells, and [`recorded`] holds what
//! kube-apiserver answered.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use reqwest::{Client, Method};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::UserInfo;

/// The roles and bindings of all requestors, as YAML.
pub const RBAC: &str = include_str!("impersonation_matrix/rbac.yaml");
/// The namespaces that [`RBAC`] names.
pub const NAMESPACES: [&str; 2] = [REQUESTORS_NAMESPACE, "apps"];
/// The namespace of the requestors' ServiceAccounts.
pub const REQUESTORS_NAMESPACE: &str = "impersonators";
/// The node that the tokens of some requestors are bound to.
pub const NODE: &str = "node-1";

/// What kube-apiserver answered, one cell a line, by the first release that answers so. 1.37 answers
/// as 1.36.
const RECORDED: [(u16, &str); 2] = [
    (33, include_str!("impersonation_matrix/1.33.jsonl")),
    (36, include_str!("impersonation_matrix/1.36.jsonl")),
];
const MAX_CONCURRENT_REQUESTS: usize = 32;

/// A ServiceAccount that impersonates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requestor {
    /// Its name in [`REQUESTORS_NAMESPACE`].
    pub name: &'static str,
    /// Whether its token is bound to [`NODE`].
    pub on_node: bool,
}

const fn requestor(name: &'static str) -> Requestor {
    Requestor {
        name,
        on_node: false,
    }
}

const fn on_node(name: &'static str) -> Requestor {
    Requestor {
        name,
        on_node: true,
    }
}

/// All requestors.
pub const REQUESTORS: [Requestor; 15] = [
    requestor("nobody"),
    requestor("legacy-all"),
    requestor("legacy-named"),
    requestor("legacy-users"),
    requestor("constrained-account"),
    requestor("constrained-account-list"),
    requestor("constrained-user"),
    requestor("constrained-any-user"),
    requestor("constrained-on-only"),
    requestor("constrained-user-only"),
    requestor("arbitrary-node"),
    on_node("associated-node"),
    on_node("associated-node-named"),
    requestor("legacy-and-constrained"),
    requestor("wildcard"),
];

/// The user that a requestor asks to be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    name: &'static str,
    user: &'static str,
    groups: &'static [&'static str],
    uid: &'static str,
    extra: &'static [(&'static str, &'static str)],
}

const fn wanted(name: &'static str, user: &'static str) -> Wanted {
    Wanted {
        name,
        user,
        groups: &[],
        uid: "",
        extra: &[],
    }
}

const JANE: Wanted = wanted("jane", "jane");
const DEPLOYER: Wanted = wanted("account", "system:serviceaccount:apps:deployer");
const NODE_1: Wanted = wanted("node", "system:node:node-1");
const TEAM: &str = "example.com/team";

/// All wanted users.
const WANTED: [Wanted; 31] = [
    JANE,
    wanted("joe", "joe"),
    jane_in("group", &["developers"]),
    jane_in("groups", &["developers", "team-a"]),
    jane_in("other-group", &["admins"]),
    jane_in("some-groups", &["developers", "admins"]),
    jane_in("four-groups", &["developers", "team-a", "team-b", "team-c"]),
    jane_in("empty-group", &[""]),
    jane_in("masters", &["system:masters"]),
    jane_in("authenticated", &["system:authenticated"]),
    jane_in("unauthenticated", &["system:unauthenticated"]),
    Wanted {
        name: "uid",
        uid: "uid-1",
        ..JANE
    },
    Wanted {
        name: "other-uid",
        uid: "uid-2",
        ..JANE
    },
    jane_with("extra", &[(TEAM, "red")]),
    jane_with("extras", &[(TEAM, "red"), (TEAM, "blue")]),
    jane_with("other-extra", &[(TEAM, "green")]),
    jane_with("other-key", &[("example.com/other", "red")]),
    jane_with("invalid-key", &[("team", "red")]),
    jane_with("empty-extra", &[(TEAM, "")]),
    jane_with(
        "four-extras",
        &[
            (TEAM, "red"),
            (TEAM, "blue"),
            (TEAM, "green"),
            (TEAM, "white"),
        ],
    ),
    Wanted {
        name: "everything",
        groups: &["developers"],
        uid: "uid-1",
        extra: &[(TEAM, "red")],
        ..JANE
    },
    DEPLOYER,
    wanted("other-account", "system:serviceaccount:apps:other"),
    Wanted {
        name: "account-group",
        groups: &["developers"],
        ..DEPLOYER
    },
    Wanted {
        name: "account-uid",
        uid: "uid-1",
        ..DEPLOYER
    },
    wanted("no-account", "system:serviceaccount:apps"),
    NODE_1,
    wanted("other-node", "system:node:node-2"),
    Wanted {
        name: "node-group",
        groups: &["system:nodes"],
        ..NODE_1
    },
    wanted("anonymous", "system:anonymous"),
    Wanted {
        name: "group-alone",
        user: "",
        groups: &["developers"],
        ..JANE
    },
];

const fn jane_in(name: &'static str, groups: &'static [&'static str]) -> Wanted {
    Wanted {
        name,
        groups,
        ..JANE
    }
}

const fn jane_with(name: &'static str, extra: &'static [(&'static str, &'static str)]) -> Wanted {
    Wanted {
        name,
        extra,
        ..JANE
    }
}

/// What a requestor sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    WhoAmI,
    ListNamespaces,
    Ping,
}

/// One impersonating request.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The user who sends it.
    pub requestor: Requestor,
    wanted: Wanted,
    request: Request,
}

/// What a server answers to a cell.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The user of a SelfSubjectReview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserInfo>,
    /// The message of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A line of a recorded file.
#[derive(Deserialize, Serialize)]
struct Line {
    cell: String,
    #[serde(flatten)]
    answer: Answer,
}

impl Requestor {
    /// Its user at a target that is not real. A real one also knows its UID.
    #[must_use]
    pub fn user(&self) -> UserInfo {
        let mut user = UserInfo {
            username: format!("system:serviceaccount:{REQUESTORS_NAMESPACE}:{}", self.name),
            groups: [
                "system:serviceaccounts",
                "system:serviceaccounts:impersonators",
                "system:authenticated",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..UserInfo::default()
        };
        if self.on_node {
            let key = "authentication.kubernetes.io/node-name".to_owned();
            user.extra.insert(key, vec![NODE.to_owned()]);
        }
        user
    }

    /// Whether kube-apiserver answers the same every time. It first tries the mode that last
    /// succeeded, and the legacy mode gives a node other groups. So a requestor that may use both
    /// modes impersonates no node.
    fn asks_for(&self, wanted: &Wanted) -> bool {
        self.name != "wildcard" || !wanted.user.starts_with("system:node:")
    }
}

impl Cell {
    /// Its name, unique in the table.
    #[must_use]
    pub fn id(&self) -> String {
        let request = match self.request {
            Request::WhoAmI => "whoami",
            Request::ListNamespaces => "list-namespaces",
            Request::Ping => "ping",
        };
        format!("{} as {} {request}", self.requestor.name, self.wanted.name)
    }

    fn headers(&self) -> Vec<(String, &'static str)> {
        let Wanted {
            user,
            groups,
            uid,
            extra,
            ..
        } = self.wanted;
        let mut headers = Vec::new();
        for (name, value) in [("Impersonate-User", user), ("Impersonate-Uid", uid)] {
            if !value.is_empty() {
                headers.push((name.to_owned(), value));
            }
        }
        for &group in groups {
            headers.push(("Impersonate-Group".to_owned(), group));
        }
        for &(key, value) in extra {
            let key = key.replace('/', "%2F");
            headers.push((format!("Impersonate-Extra-{key}"), value));
        }
        headers
    }

    async fn send_probe_request(
        &self,
        client: &Client,
        server: &str,
        token: &SecretString,
    ) -> Result<Answer, reqwest::Error> {
        let (method, path) = match self.request {
            Request::WhoAmI => (
                Method::POST,
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            ),
            Request::ListNamespaces => (Method::GET, "/api/v1/namespaces"),
            Request::Ping => (Method::GET, "/livez/ping"),
        };
        let mut request = client
            .request(method, format!("{server}{path}"))
            .bearer_auth(token.expose_secret());
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        if self.request == Request::WhoAmI {
            request = request.json(
                &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
            );
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let user = &body["status"]["userInfo"];
        let message = || body["message"].as_str().map_or(text.clone(), str::to_owned);
        Ok(Answer {
            status,
            user: serde_json::from_value(user.clone())
                .ok()
                .filter(|_| user.is_object()),
            message: (status >= 400).then(message),
        })
    }
}

/// Every cell: each requestor sends a SelfSubjectReview as each user, and further requests as some
/// of them.
#[must_use]
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for requestor in REQUESTORS {
        for wanted in WANTED.iter().filter(|wanted| requestor.asks_for(wanted)) {
            cells.push(Cell {
                requestor,
                wanted: *wanted,
                request: Request::WhoAmI,
            });
        }
        for (wanted, request) in [
            (JANE, Request::ListNamespaces),
            (DEPLOYER, Request::ListNamespaces),
            (JANE, Request::Ping),
            (DEPLOYER, Request::Ping),
        ] {
            cells.push(Cell {
                requestor,
                wanted,
                request,
            });
        }
    }
    cells
}

/// Asks a server about every cell. `tokens` has a token of each requestor by its name, and `client`
/// trusts the server.
///
/// # Errors
/// A request got no response.
///
/// # Panics
/// A requestor has no token.
#[allow(clippy::expect_used)]
pub async fn answers(
    client: &Client,
    server: &str,
    tokens: &BTreeMap<String, SecretString>,
) -> Result<BTreeMap<String, Answer>, reqwest::Error> {
    let asked = cells().into_iter().map(|cell| async move {
        let token = tokens
            .get(cell.requestor.name)
            .expect("every requestor has a token");
        let answer = cell.send_probe_request(client, server, token).await?;
        Ok((cell.id(), answer))
    });
    let answers: Vec<Result<_, reqwest::Error>> = stream::iter(asked)
        .buffer_unordered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    answers.into_iter().collect()
}

/// Removes the messages that depend on earlier requests. From 1.36 on, kube-apiserver tries the
/// mode that last succeeded first, and reports the refusal of that one.
#[must_use]
pub fn comparable(minor: u16, mut answers: BTreeMap<String, Answer>) -> BTreeMap<String, Answer> {
    for requestor in REQUESTORS {
        let of_requestor = |id: &str| id.split(' ').next() == Some(requestor.name);
        let succeeded = answers
            .iter()
            .any(|(id, answer)| of_requestor(id) && answer.status < 400);
        if minor < 36 || !succeeded {
            continue;
        }
        for (id, answer) in &mut answers {
            if of_requestor(id) && answer.status == 403 {
                answer.message = None;
            }
        }
    }
    answers
}

/// The release whose recorded answers are those of 1.`minor`.
#[must_use]
pub fn recorded_since(minor: u16) -> u16 {
    recording(minor).map_or(minor, |(since, _)| since)
}

fn recording(minor: u16) -> Option<(u16, &'static str)> {
    RECORDED.into_iter().rfind(|(since, _)| *since <= minor)
}

/// What kube-apiserver 1.`minor` answered, after [`comparable`]; empty for a release that is older
/// than all recorded ones.
#[must_use]
pub fn recorded(minor: u16) -> BTreeMap<String, Answer> {
    let text = recording(minor).map_or("", |(_, text)| text);
    text.lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .map(|line| (line.cell, line.answer))
        .collect()
}

/// Writes answers as [`recorded`] reads them.
///
/// # Errors
/// An answer cannot be written as JSON.
pub fn to_lines(answers: &BTreeMap<String, Answer>) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    for (cell, answer) in answers {
        let line = Line {
            cell: cell.clone(),
            answer: answer.clone(),
        };
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    Ok(text)
}

/// The cells in which two servers differ, each with both answers.
#[must_use]
pub fn differences(
    left: &BTreeMap<String, Answer>,
    right: &BTreeMap<String, Answer>,
) -> Vec<String> {
    let all: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    all.into_iter()
        .filter(|id| left.get(*id) != right.get(*id))
        .map(|id| format!("{id}\n  {:?}\n  {:?}", left.get(id), right.get(id)))
        .collect()
}
