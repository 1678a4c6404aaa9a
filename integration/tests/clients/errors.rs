//! Tests the messages of the command line when it cannot do its task.

use std::sync::Arc;

use insta::assert_snapshot;
use keyferry_integration::runner::TestResult;
use keyferry_integration::transcript::joined;
use keyferry_integration::world::{ACCOUNT, AUDIENCE_A, TENANT, World};

use super::command::{failed, server, token_file};

pub(crate) async fn errors_name_the_fix_and_nothing_secret(world: Arc<World>) -> TestResult {
    let (server, (folder, file)) = (server(&world), token_file(&world).await?);
    let [_, url, _, ca] = &server;
    let caller = std::fs::read_to_string(&file)?;
    let wrong_audience = folder.path().join("wrong-audience").display().to_string();
    std::fs::write(
        &wrong_audience,
        world
            .hub()
            .token_request(TENANT, ACCOUNT, &[AUDIENCE_A], 600)
            .await?
            .token,
    )?;
    let broken = folder.path().join("broken").display().to_string();
    std::fs::write(
        &broken,
        format!("apiVersion: v1\nkind: Config\nusers:\n- name: x\n  user: {{token: {caller}\n"),
    )?;
    let admin = world.hub().admin_kubeconfig().display().to_string();
    let config = world.broker().config().display().to_string();
    let plain_url = url.replace("https://", "http://");
    let (unknown, own) = ("/no/such/file", format!("--certificate-authority {ca}"));
    let calls = [
        "token tenant-a/a".to_owned(),
        format!("token a --server {url}"),
        format!("token tenant-a/a --server {url}"),
        format!("token tenant-a/a --server {url} --token-file {unknown}"),
        format!("token tenant-a/a --server {url} --token-file {broken}"),
        format!("token tenant-a/a --server {url} --token-file {file}"),
        format!(
            "token tenant-a/a --server {url} --certificate-authority {file} --token-file {file}"
        ),
        format!("token tenant-a/a --server {plain_url} --token-file {file}"),
        format!("token tenant-a/a --server https://127.0.0.1:1 {own} --token-file {file}"),
        format!("token tenant-a/b --server {url} {own} --token-file {file}"),
        format!("kubeconfig tenant-a/b --server {url} {own} --token-file {file}"),
        format!("token tenant-a/a --server {url} {own} --token-file {wrong_audience}"),
        format!("kubeconfig tenant-a/a --server {url} {own} --token-file {wrong_audience}"),
        format!("token tenant-a/a --config {unknown} --kubeconfig {admin}"),
        format!("token tenant-a/a --config {config} --kubeconfig {broken}"),
        format!("token tenant-a/a --config {config} --kubeconfig {admin} --context none"),
        format!("token tenant-a/a --config {config}"),
        format!("targets --config {broken}"),
    ];
    let mut shown = Vec::new();
    for call in calls {
        let args: Vec<&str> = call.split(' ').collect();
        let said = failed(&world, &args, &[]).await?;
        let signature = caller.rsplit('.').next().unwrap_or_default();
        assert!(!said.stderr.contains(signature), "{call} prints a token");
        shown.push(said.shown);
    }
    assert_snapshot!("errors", joined(&shown));
    Ok(())
}
