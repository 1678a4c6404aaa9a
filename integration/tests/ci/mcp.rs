//! kubernetes-mcp-server exchanges the token of each person who asks it, for a person whom a rule
//! of `externalIssuers` admits.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keyferry_integration::mcp_server::McpServer;
use keyferry_integration::runner::{TestError, TestResult};
use serde_json::json;

use super::stage::{AUDIENCE, Stage};

pub(crate) async fn an_mcp_server_exchanges_the_token_of_who_asks(stage: Arc<Stage>) -> TestResult {
    let [_, _, gitlab] = stage.shapes()?;
    // The server takes the token endpoint from the metadata of its users' issuer.
    let issuer = gitlab.claims["iss"].as_str().unwrap_or_default().to_owned();
    let documents = stage.issuer.documents();
    let metadata = json!({
        "issuer": issuer, "jwks_uri": format!("{issuer}/keys"),
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{}/v1/token", stage.broker.api_url()),
        "id_token_signing_alg_values_supported": [stage.issuer.algorithm().name()],
    });
    documents.put("/gitlab/.well-known/openid-configuration", &metadata);
    let person = stage.job(&gitlab, "a-person")?;
    stage
        .broker
        .exchange_in_time(&person, "tenant-a/prod")
        .await?;

    // Without an id of its own, the server sends the person's token alone.
    let server = start(&stage, &issuer, "").await?;
    let refused = list(&server, &person).await?;
    assert!(
        refused.contains("User \"hub:system:serviceaccount:tenant-a:reconciler\" cannot list"),
        "{refused}: {}",
        server.logs_tail()
    );
    // A person whom no rule admits gets nothing at the target.
    let mut claims = gitlab.claims.clone();
    claims["ref"] = json!("a-branch-of-anyone");
    claims["jti"] = json!("another-person");
    let other = list(&server, &stage.issuer.token(&claims)?).await?;
    assert!(!other.contains("cannot list"), "{other}");

    // With `federated`, it proves itself beside the person. Keyferry takes one proof.
    let token_file = stage.ground.folder().join("federated-token");
    std::fs::write(&token_file, &person)?;
    let further = format!(
        "sts_client_id = \"agent\"\nsts_auth_style = \"federated\"\nsts_federated_token_file = \"{}\"\n",
        token_file.display()
    );
    let server = start(&stage, &issuer, &further).await?;
    let two_proofs = list(&server, &person).await?;
    assert!(
        two_proofs.contains("client_assertion needs grant_type client_credentials"),
        "{two_proofs}: {}",
        server.logs_tail()
    );
    Ok(())
}

async fn list(server: &McpServer, person: &str) -> Result<String, TestError> {
    let called = server
        .call("namespaces_list", &json!({}), Some(person))
        .await?;
    assert!(called.is_error, "{}", called.text);
    Ok(called.text)
}

async fn start(stage: &Stage, issuer: &str, further: &str) -> Result<McpServer, TestError> {
    let folder = tempfile::tempdir_in(stage.ground.folder())?.keep();
    let ca = STANDARD.encode(stage.target.ca_pem());
    let cluster = json!({ "server": stage.target.url(), "certificate-authority-data": ca });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "target",
        "clusters": [{ "name": "target", "cluster": cluster }],
        "users": [{ "name": "nobody", "user": {} }],
        "contexts": [{ "name": "target", "context": { "cluster": "target", "user": "nobody" } }],
    });
    let path = folder.join("target.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string())?;
    let settings = format!(
        "kubeconfig = \"{}\"\ncluster_provider_strategy = \"kubeconfig\"\nrequire_oauth = true\n\
         oauth_audience = \"{AUDIENCE}\"\nauthorization_url = \"{issuer}\"\n\
         certificate_authority = \"{}\"\ncluster_auth_mode = \"passthrough\"\n\
         token_exchange_strategy = \"rfc8693\"\nsts_audience = \"tenant-a/prod\"\n{further}",
        path.display(),
        stage.broker.ca_path().display(),
    );
    McpServer::start(stage.ground.parts(), &folder, &settings).await
}
