//! Tests the messages of the command line when it cannot do its task.

use std::sync::Arc;

use keyferry_integration::runner::TestResult;
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
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["token", "tenant-a/a"],
            &["fix: give --server URL, or a kubeconfig of the hub"],
        ),
        (
            &["token", "a", "--server", url],
            &[
                "the access",
                "fix: write NAME with -n NAMESPACE, or NAMESPACE/NAME",
            ],
        ),
        (
            &["token", "tenant-a/a", "--server", url],
            &["give --token-file, or --service-account with a hub kubeconfig"],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--server",
                url,
                "--token-file",
                "/no/such/file",
            ],
            &["/no/such/file", "does not exist"],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--server",
                url,
                "--token-file",
                &broken,
            ],
            &["it does not hold a token"],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--server",
                url,
                "--token-file",
                &file,
            ],
            &[
                "signed by an unknown CA (issuer ",
                "--certificate-authority FILE",
            ],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--server",
                url,
                "--certificate-authority",
                &file,
                "--token-file",
                &file,
            ],
            &["must be a PEM file"],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--server",
                &plain_url,
                "--token-file",
                &file,
            ],
            &["the address is not an https URL", "fix: write https://"],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--server",
                "https://127.0.0.1:1",
                "--certificate-authority",
                ca,
                "--token-file",
                &file,
            ],
            &["https://127.0.0.1:1", "connection refused at 127.0.0.1:1"],
        ),
        (
            &[
                "token",
                "tenant-a/b",
                "--server",
                url,
                "--certificate-authority",
                ca,
                "--token-file",
                &file,
            ],
            &[
                "400 invalid_target",
                "(request id ",
                "ask the server's admin for the audit record",
            ],
        ),
        (
            &[
                "kubeconfig",
                "tenant-a/b",
                "--server",
                url,
                "--certificate-authority",
                ca,
                "--token-file",
                &file,
            ],
            &[
                "403 access_denied",
                "(request id ",
                "ask the server's admin for the audit record",
            ],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--server",
                url,
                "--certificate-authority",
                ca,
                "--token-file",
                &wrong_audience,
            ],
            &[
                AUDIENCE_A,
                "not keyferry.dev\nfix: kubectl create token reconciler -n tenant-a --audience \
                 keyferry.dev",
            ],
        ),
        (
            &[
                "kubeconfig",
                "tenant-a/a",
                "--server",
                url,
                "--certificate-authority",
                ca,
                "--token-file",
                &wrong_audience,
            ],
            &["not keyferry.dev\nfix: kubectl create token"],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--config",
                "/no/such/config",
                "--kubeconfig",
                &admin,
            ],
            &["/no/such/config"],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--config",
                &config,
                "--kubeconfig",
                &broken,
            ],
            &["reading the kubeconfig", "not a kubeconfig"],
        ),
        (
            &[
                "token",
                "tenant-a/a",
                "--config",
                &config,
                "--kubeconfig",
                &admin,
                "--context",
                "none",
            ],
            &["its context names no usable"],
        ),
        (
            &["token", "tenant-a/a", "--config", &config],
            &["a kubeconfig of the hub (--kubeconfig"],
        ),
        (&["targets", "--config", &broken], &["mistake"]),
    ];
    for (args, parts) in cases {
        let said = failed(&world, args, &[]).await?;
        for part in *parts {
            assert!(
                said.contains(part),
                "{args:?} does not say {part:?} but: {said}"
            );
        }
        let signature = caller.rsplit('.').next().unwrap_or_default();
        assert!(!said.contains(signature), "{args:?} prints a token");
    }
    Ok(())
}
