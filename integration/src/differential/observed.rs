//! The observations that `keyferry-cel-kubernetes` replays without Go: asks the oracles for them,
//! and writes them or compares them.
//!
//! The file has one line for each expression: its scope, its text as a JSON string, and then the
//! observations, each with the number of the first minor release that gives it. The fields are
//! separated by tabs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::generate::{Scope, catalogue};
use super::judge;
use crate::oracle::{Expression, Expressions, Oracle, Oracles};
use crate::parts::OracleRelease;
use crate::runner::{TestError, TestResult};

/// Fewer observations would not cover the grammar.
const FEWEST: usize = 5000;
/// The expressions of one question. An oracle has a minute for each.
const CHUNK: usize = 100;

/// Asks the oracles about every recorded expression. With `KEYFERRY_WRITE_COPIES=1` it asks those
/// of all minor versions, also about the expressions of the catalogue, and writes the file.
///
/// # Errors
/// The observations that differ.
pub async fn recorded(oracles: &Oracles) -> TestResult {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker/cel-kubernetes/src/tests");
    let (inputs, table) = (folder.join("inputs.json"), folder.join("observed.tsv"));
    let inputs: Value = serde_json::from_str(&read(&inputs)?)?;
    let written = read(&table)?;
    if std::env::var_os("KEYFERRY_WRITE_COPIES").is_some_and(|value| value == "1") {
        let oracles = Oracles::of(&OracleRelease::EVERY_MINOR)
            .await
            .map_err(|error| format!("{error:?}"))?;
        let mut known = BTreeSet::new();
        let catalogue = catalogue::expressions().into_iter().map(|(scope, text)| {
            let scope = match scope {
                Scope::Claims => "claims",
                Scope::User => "user",
            };
            Expression { scope, text }
        });
        let expressions: Vec<Expression> = rows(&written)?
            .into_iter()
            .map(|row| row.expression)
            .chain(catalogue)
            .filter(|expression| known.insert(expression.clone()))
            .collect();
        let table_text = table_of(&oracles, &inputs, &expressions).await?;
        return Ok(std::fs::write(&table, table_text)?);
    }
    let rows = rows(&written)?;
    if rows.len() < FEWEST {
        return Err(format!("only {} observations are recorded", rows.len()).into());
    }
    let expressions: Vec<Expression> = rows.iter().map(|row| row.expression.clone()).collect();
    let observed = observe_all(oracles, &inputs, &expressions).await?;
    let mut wrong = Vec::new();
    for (oracle, observations) in oracles.all().iter().zip(observed) {
        for (row, observation) in rows.iter().zip(observations) {
            let recorded = row.of(judge::minor(oracle.release()).number());
            if !may_be(recorded, &observation) {
                let text = &row.expression.text;
                wrong.push(format!(
                    "{text:?} in {:?}: recorded {recorded:?}, now {observation:?}",
                    oracle.release()
                ));
            }
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} observations differ; KEYFERRY_WRITE_COPIES=1 writes them\n{}",
        wrong.len(),
        wrong
            .iter()
            .take(20)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    )
    .into())
}

/// Whether the oracle may have observed this where the other was recorded. A part recorded as `~`
/// differs between evaluations, because Go iterates a map in random order, so a few evaluations may
/// agree on it by chance.
fn may_be(recorded: &str, observed: &str) -> bool {
    let (mut recorded, mut observed) = (recorded, observed);
    if let Some(rest) = recorded.strip_prefix("~ ") {
        recorded = rest;
        observed = observed.split_once(' ').map_or("", |(_, rest)| rest);
    }
    match recorded.strip_suffix('~') {
        Some(start) => observed.starts_with(start),
        None => recorded == observed,
    }
}

fn read(path: &PathBuf) -> Result<String, TestError> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// One line of the file.
struct Row {
    expression: Expression,
    /// The first minor release of each observation, and the observation.
    observations: Vec<(u8, String)>,
}

impl Row {
    fn of(&self, minor: u8) -> &str {
        self.observations
            .iter()
            .rev()
            .find(|(since, _)| *since <= minor)
            .map_or("", |(_, observation)| observation)
    }
}

fn rows(table: &str) -> Result<Vec<Row>, TestError> {
    table
        .lines()
        .map(|line| {
            let mut fields = line.split('\t');
            let scope = match fields.next() {
                Some("user") => "user",
                _ => "claims",
            };
            let text = serde_json::from_str(fields.next().unwrap_or_default())?;
            let observations = fields
                .filter_map(|field| {
                    let (since, observation) = field.split_once(' ')?;
                    Some((since.parse().ok()?, observation.to_owned()))
                })
                .collect();
            Ok(Row {
                expression: Expression { scope, text },
                observations,
            })
        })
        .collect()
}

async fn table_of(
    oracles: &Oracles,
    inputs: &Value,
    expressions: &[Expression],
) -> Result<String, TestError> {
    let minors = oracles
        .all()
        .iter()
        .map(|oracle| judge::minor(oracle.release()).number());
    let observed = observe_all(oracles, inputs, expressions).await?;
    let columns: Vec<(u8, Vec<String>)> = minors.zip(observed).collect();
    let mut table = String::new();
    for (index, expression) in expressions.iter().enumerate() {
        table.push_str(&format!("{}\t{}", expression.scope, json!(expression.text)));
        let mut last = None;
        for (minor, observations) in &columns {
            let observation = &observations[index];
            if last != Some(observation) {
                table.push_str(&format!("\t{minor} {observation}"));
                last = Some(observation);
            }
        }
        table.push('\n');
    }
    Ok(table)
}

/// The observations of each oracle, oldest release first.
async fn observe_all(
    oracles: &Oracles,
    inputs: &Value,
    expressions: &[Expression],
) -> Result<Vec<Vec<String>>, TestError> {
    let each = oracles
        .all()
        .iter()
        .map(|oracle| observe(oracle, inputs, expressions));
    futures::future::try_join_all(each).await
}

async fn observe(
    oracle: &Oracle,
    inputs: &Value,
    expressions: &[Expression],
) -> Result<Vec<String>, TestError> {
    let user = &inputs["user"];
    let mut all = Vec::with_capacity(expressions.len());
    for chunk in expressions.chunks(CHUNK) {
        let question = Expressions {
            claims: inputs["claims"].clone(),
            user: json!({
                "Name": user["username"],
                "UID": user["uid"],
                "Groups": user["groups"],
                "Extra": user["extra"],
            }),
            expressions: chunk.to_vec(),
        };
        all.extend(oracle.observe(question).await?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::may_be;

    #[test]
    fn only_a_part_that_varies_may_differ() {
        for (recorded, observed, same) in [
            ("13 bool = bool:true", "13 bool = bool:true", true),
            ("13 bool = bool:true", "12 bool = bool:true", false),
            ("13 bool = bool:true", "~ bool = bool:true", false),
            ("~ bool = bool:true", "13 bool = bool:true", true),
            ("~ bool = bool:true", "13 bool = bool:false", false),
            ("9 dyn fails ~", "9 dyn fails no such key: a", true),
            ("9 dyn fails ~", "8 dyn fails no such key: a", false),
            ("~ dyn fails ~", "8 dyn fails no such key: a", true),
            ("~", "9 bool = bool:true", true),
        ] {
            assert_eq!(may_be(recorded, observed), same, "{recorded} {observed}");
        }
    }
}
