//! kubernetes-mcp-server: the real binary, which its package of the npm registry contains, with one
//! JSON-RPC request for each call of a tool.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http_client::plain_client;
use crate::parts::Parts;
use crate::parts::installed::Client;
use crate::ports::free_port;
use crate::process::{Process, ProcessSpec};
use crate::runner::TestError;

const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct McpServer {
    process: Process,
    url: String,
    http: reqwest::Client,
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAnswer {
    /// Whether the tool failed.
    pub is_error: bool,
    /// Its text.
    pub text: String,
}

impl McpServer {
    /// Starts it with these lines of its configuration, in TOML, and this home folder.
    ///
    /// # Errors
    /// It is not installed, or does not answer within 30 s.
    pub async fn start(parts: &Parts, home: &Path, settings: &str) -> Result<Self, TestError> {
        let installed = parts.install(Client::McpServer).await?;
        let port = free_port()?;
        let config = home.join(format!("mcp-server-{port}.toml"));
        let listener = format!("port = \"{port}\"\nbind_address = \"127.0.0.1\"\nstateless = true");
        std::fs::write(&config, format!("{listener}\n{settings}"))?;
        let args = ["--config".into(), config.clone().into_os_string()];
        let process = Process::spawn(&ProcessSpec {
            name: "kubernetes-mcp-server".to_owned(),
            program: installed.program,
            args: args.into_iter().collect(),
            env: vec![("HOME".to_owned(), OsString::from(home))],
            log: config.with_extension("log"),
        })
        .await?;
        let server = Self {
            process,
            url: format!("http://127.0.0.1:{port}"),
            http: plain_client()?,
        };
        let limit = Instant::now() + READY_WITHIN;
        let health = format!("{}/healthz", server.url);
        while server.http.get(&health).send().await.is_err() {
            if Instant::now() > limit {
                return Err(format!("it does not answer: {}", server.process.logs_tail(20)).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }

    /// Calls a tool, with a bearer token if the client has one.
    ///
    /// # Errors
    /// The answer is none of a tool.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        bearer: Option<&str>,
    ) -> Result<ToolAnswer, TestError> {
        let params = json!({ "name": tool, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let mut request = self
            .http
            .post(format!("{}/mcp", self.url))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string());
        if let Some(token) = bearer {
            request = request.bearer_auth(token);
        }
        let text = request.send().await?.text().await?;
        // An event stream: notifications, such as of a refusal, and the response.
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let response = events
            .filter_map(|event| serde_json::from_str::<Value>(event).ok())
            .find(|event| event["id"] == 1)
            .ok_or_else(|| format!("no response: {text}"))?;
        let said = response["result"]["content"][0]["text"].as_str();
        Ok(ToolAnswer {
            is_error: response["result"]["isError"] == true,
            text: said
                .ok_or_else(|| format!("no text: {response}"))?
                .to_owned(),
        })
    }
}
