//! Tokens that no job may use, against each shape of external issuer and on each route. None is
//! accepted, and all get the same answer; to claims that no rule accepts, it names a claim.

mod table;

use std::collections::HashMap;
use std::sync::Arc;

use keyferry_integration::runner::TestResult;
use keyferry_integration::world::Answer;
use serde_json::Value;

use self::table::{Forged, table};
use super::shapes::Shape;
use super::stage::Stage;

/// A request that was refused, until its audit record is read.
struct Refused {
    description: String,
    request_id: String,
    /// Whether the answer named a claim.
    names_claim: bool,
}

impl Refused {
    /// Notes the answer, in which no value of any rule stands.
    fn of(answer: &Answer, description: &str, shapes: &[Shape]) -> Self {
        let (_, _, names) = split_answer(answer);
        let mut values = shapes
            .iter()
            .flat_map(|shape| shape.rule.values().filter_map(Value::as_str));
        let shown = names.as_deref().unwrap_or_default();
        let value = values.find(|value| shown.contains(*value));
        assert_eq!(value, None, "{description}: a rule's value in {shown}");
        Self {
            description: description.to_owned(),
            request_id: answer.request_id.clone(),
            names_claim: names.is_some(),
        }
    }
}

/// Splits the answer into what is the same for every fault, and the claims that it names.
fn split_answer(answer: &Answer) -> (u16, String, Option<String>) {
    const NAMED: &str = ": no rule accepts its claim ";
    match answer.body.split_once(NAMED) {
        None => (answer.status, answer.body.clone(), None),
        Some((start, rest)) => {
            let (names, end) = rest.split_once('"').unwrap_or((rest, ""));
            let same = format!("{start}\"{end}");
            (answer.status, same, Some(names.to_owned()))
        }
    }
}

pub(crate) async fn no_forged_or_mismatched_token_is_accepted(stage: Arc<Stage>) -> TestResult {
    let count = stage.all_shapes()?.len();
    let (mut tokens, mut refused) = (0, Vec::new());
    let mut expected: Option<[(u16, String); 3]> = None;
    for index in 0..count {
        // Made again for each, because a time of issue in the future is in the past a minute later.
        let shapes = stage.all_shapes()?;
        let shape = &shapes[index];
        // The same token without the fault is admitted: only the fault is refused.
        admitted(&stage, shape, "good").await?;
        for Forged { name, token } in table(&stage, shape, &shapes)? {
            let case = format!("{}: {name}", shape.name);
            let [namespace, object] = shape.access();
            let access = format!("{namespace}/{object}");
            let mut answers = vec![
                stage.broker.exchange(&token, &access).await?,
                stage.assert_identity(&token, &access).await?,
            ];
            // A header holds no line break and at most 8 KiB.
            let sendable = token.len() < 8000 && token.bytes().all(|byte| byte.is_ascii_graphic());
            if sendable {
                let route = stage.broker.kubeconfig_of(&token, namespace, object);
                answers.push(route.await?);
            }
            for answer in &answers {
                assert!(!answer.body.contains("eyJ"), "{case}: {}", answer.body);
                assert!(answer.status >= 400, "{case}: {}", answer.body);
                refused.push(Refused::of(answer, &case, &shapes));
            }
            if let [exchange, assertion, kubeconfig] = answers.as_slice() {
                let bytes = [exchange, assertion, kubeconfig].map(|answer| {
                    let (status, same, _) = split_answer(answer);
                    (status, same)
                });
                let first = expected.get_or_insert_with(|| bytes.clone());
                assert_eq!(*first, bytes, "{case}: every fault has the same bytes");
            }
            tokens += 1;
        }
        admitted(&stage, shape, "good again").await?;
    }
    all_denied(&stage, &refused)?;
    eprintln!(
        "{tokens} forged or mismatched tokens of {count} shapes in {} requests, none accepted",
        refused.len()
    );
    assert!(tokens >= 80 * count, "{tokens}");
    Ok(())
}

/// Checks that each request has one audit record, which denies it for a reason about the caller.
fn all_denied(stage: &Stage, refused: &[Refused]) -> TestResult {
    let mut records: HashMap<String, Vec<Value>> = HashMap::new();
    for record in stage.broker.audit()? {
        let id = record["requestId"].as_str().unwrap_or_default().to_owned();
        records.entry(id).or_default().push(record);
    }
    for Refused {
        description: what,
        request_id,
        names_claim,
    } in refused
    {
        let found = records.get(request_id).map(Vec::as_slice);
        let Some([record]) = found else {
            return Err(format!("{what}: not one audit record: {found:?}").into());
        };
        let reason = record["reason"].as_str().unwrap_or_default();
        assert!(
            record["decision"] == "denied" && reason.starts_with("Caller"),
            "{what}: {record}"
        );
        assert!(record.get("callerIssuer").is_none(), "{what}: {record}");
        let has_claim = record.get("callerClaim").is_some();
        assert_eq!(has_claim, *names_claim, "{what}: {record}");
        assert_eq!(
            has_claim,
            reason == "CallerClaimsMismatch",
            "{what}: {record}"
        );
    }
    Ok(())
}

/// Exchanges a job's token without a fault.
async fn admitted(stage: &Stage, shape: &Shape, id: &str) -> TestResult {
    let token = stage.job(shape, &format!("{id} {}", shape.name))?;
    let access = shape.access().join("/");
    if shape.account == "notifier" {
        // Keyferry may not mint for this account in one of the modes. The reason shows whether the
        // caller was accepted.
        let answer = stage.broker.exchange(&token, &access).await?;
        let record = stage.broker.audit_of(&answer.request_id)?;
        let reason = record["reason"].as_str().unwrap_or_default();
        assert!(!reason.starts_with("Caller"), "{}: {record}", shape.name);
        assert_eq!(record["caller"], "system:serviceaccount:tenant-a:notifier");
        return Ok(());
    }
    stage.broker.exchange_in_time(&token, &access).await?;
    Ok(())
}
