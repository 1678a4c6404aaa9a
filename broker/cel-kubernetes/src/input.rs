//! The input that an expression is evaluated on.

use std::collections::BTreeMap;

use serde_json::{Map as JsonMap, Value as Json};

use crate::Minor;
use crate::Scope;
use crate::value::{Lazy, List, Map, Val};

/// The deepest nesting of claims that is evaluated.
const MAX_DEPTH: u32 = 130;

/// The error value of a claim that nests too deep to be read here. If it is the result, the result
/// is undetermined. If another operand of `&&` or `||` decides, the claim's own value would have
/// changed nothing.
pub(crate) const TOO_DEEP: &str = "\0the claim nests too deep";

/// Why an expression cannot use a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimError {
    /// The API server fails with this message when an expression uses the claim.
    Failed(String),
    /// The claim nests too deep to be evaluated here. If the result depends on it, the result is
    /// undetermined.
    TooDeep,
}

impl ClaimError {
    fn message(&self) -> &str {
        match self {
            Self::Failed(message) => message,
            Self::TooDeep => TOO_DEEP,
        }
    }
}

/// The value of an expression's variable.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// The claims of a token, as JSON. Numbers are converted as in Kubernetes: from 1.34 each is a
    /// double, before that integers that fit 64 bits are ints.
    Claims(&'a JsonMap<String, Json>),
    /// The claims of a token, some of which fail when an expression uses them.
    PartialClaims {
        /// The claims that an expression can use.
        claims: &'a JsonMap<String, Json>,
        /// The claims that fail, with the error of each.
        failing: &'a BTreeMap<String, ClaimError>,
    },
    /// A user, as a mapping names it.
    User(&'a UserInfo),
}

/// A user, as user validation rules see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user name.
    pub username: String,
    /// The UID, which may be empty.
    pub uid: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Extra values by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Returns the variable of a run, or why it cannot be decided.
pub(crate) fn input_variable(
    input: Input<'_>,
    scope: Scope,
    minor: Minor,
) -> Result<Val, &'static str> {
    let lazy = minor >= Minor::V1_34;
    let entries: Vec<(String, Val)> = match (input, scope) {
        (Input::Claims(claims), Scope::Claims) => claim_values(claims, minor)?,
        (Input::PartialClaims { claims, failing }, Scope::Claims) => {
            let failing = failing
                .iter()
                .map(|(name, error)| (name.clone(), Val::error(error.message())));
            claim_values(claims, minor)?
                .into_iter()
                .chain(failing)
                .collect()
        }
        (Input::User(user), Scope::User) => {
            // From 1.34 on, these lists are `[]string` in Go.
            let texts = |list: &[String]| {
                if lazy {
                    Val::List(List::of_strings(list.to_vec()))
                } else {
                    Val::list(list.iter().map(|s| Val::from(s.as_str())).collect())
                }
            };
            let extra = user
                .extra
                .iter()
                .map(|(k, v)| (Val::from(k.as_str()), texts(v)))
                .collect();
            vec![
                ("username".to_owned(), Val::from(user.username.as_str())),
                ("uid".to_owned(), Val::from(user.uid.as_str())),
                ("groups".to_owned(), texts(&user.groups)),
                ("extra".to_owned(), Val::Map(Map::json(extra))),
            ]
        }
        _ => return Err("the input is not the variable of the expression"),
    };
    if lazy {
        let name = if scope == Scope::Claims {
            "kubernetes.claims"
        } else {
            "kubernetes.UserInfo"
        };
        let entries = entries
            .into_iter()
            .map(|(k, v)| (k.into(), v.unescaping()))
            .collect();
        return Ok(Val::Lazy(Lazy::new(name, entries).into()));
    }
    Ok(Val::Map(Map::json(
        entries
            .into_iter()
            .map(|(k, v)| (Val::from(k), v))
            .collect(),
    )))
}

fn claim_values(
    claims: &JsonMap<String, Json>,
    minor: Minor,
) -> Result<Vec<(String, Val)>, &'static str> {
    claims
        .iter()
        .map(|(k, v)| Ok((k.clone(), json_value(v, minor, 0)?)))
        .collect()
}

fn json_value(value: &Json, minor: Minor, depth: u32) -> Result<Val, &'static str> {
    if depth > MAX_DEPTH {
        return Err("the claims nest too deeply");
    }
    Ok(match value {
        Json::Null => Val::Null,
        Json::Bool(b) => Val::Bool(*b),
        Json::String(s) => Val::from(s.as_str()),
        Json::Number(n) => match n.as_i64() {
            Some(n) if minor < Minor::V1_34 => Val::Int(n),
            _ => match n.as_f64() {
                Some(d) => Val::Double(d),
                None => return Err("a number that cannot be held"),
            },
        },
        Json::Array(items) => Val::list(
            items
                .iter()
                .map(|v| json_value(v, minor, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Json::Object(entries) => {
            let mut read = Vec::with_capacity(entries.len());
            for (k, v) in entries {
                read.push((Val::from(k.as_str()), json_value(v, minor, depth + 1)?));
            }
            Val::Map(Map::json(read))
        }
    })
}
