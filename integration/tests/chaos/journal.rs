//! The leader is killed while it writes the key journal, because the hub signs with a new key.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keyferry_integration::chaos_proxy::Rule;
use keyferry_integration::runner::{TestError, TestResult};
use keyferry_integration::wait::until;
use keyferry_integration::world::on_hub::OnHub;
use serde_json::Value;

use super::stage::{MOMENTS, Stage};
use crate::rotation::stage::{hub_kids, sign_with_new_key};

const JOURNAL: &str = "/secrets/keyferry-keys";
const RECORDED_WITHIN: Duration = Duration::from_secs(120);

pub(super) async fn killed_at_a_write_of_the_key_journal_it_stays_whole(
    stage: Arc<Stage>,
) -> TestResult {
    let world = &stage.world;
    for (number, moment) in MOMENTS.into_iter().enumerate() {
        let armed = stage.kill_at(moment, |fault| Rule::on(Method::PUT, JOURNAL, fault))?;
        let flow = async {
            sign_with_new_key(&world.hub, &format!("journal-{number}")).await?;
            let mut kids = hub_kids(&world.hub).await?;
            kids.sort();
            until("the journal has each key once", RECORDED_WITHIN, || async {
                Ok(recorded_kids(world).await? == kids)
            })
            .await
        };
        // A reader between two leaders finds a sealed journal.
        let check = async { recorded_kids(world).await.map(drop) };
        let request = stage.survive(armed, flow, check).await?;
        eprintln!("{moment:?}: {request:?}");
        assert!(request.is_some(), "the journal was not replaced");
    }
    Ok(())
}

/// The kids of the journal, sorted, as the command reads them: it refuses a journal without its seal.
async fn recorded_kids(world: &OnHub) -> Result<Vec<String>, TestError> {
    let hub = world.hub.admin_kubeconfig().display().to_string();
    let arguments = ["keys", "--kubeconfig", &hub, "-o", "json"];
    let answer = world.ground.binary().run(&arguments, &[]).await?;
    if !answer.status.success() {
        return Err(String::from_utf8_lossy(&answer.stderr).into_owned().into());
    }
    let document: Value = serde_json::from_slice(&answer.stdout)?;
    let keys = document["keys"].as_array().cloned().unwrap_or_default();
    let mut kids: Vec<String> = keys
        .iter()
        .map(|key| key["kid"].as_str().unwrap_or_default().to_owned())
        .collect();
    kids.sort();
    Ok(kids)
}
