//! Debian's Chromium without a screen, driven over WebDriver.
//!
//! A page's policy forbids every script, but not those that chromedriver runs for a test.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::http_client::plain_client;
use crate::parts::PartError;
use crate::ports::free_port;
use crate::process::{Process, ProcessSpec, run_to_end};
use crate::runner::TestError;
use crate::wait::until;

const PACKAGES: [&str; 3] = ["chromium", "chromium-driver", "fonts-dejavu-core"];
const INSTALLED_WITHIN: Duration = Duration::from_secs(240);
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The key Tab in WebDriver's table of keys.
const TAB: &str = "\u{e004}";

/// The colours that a reader prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorScheme {
    /// Dark text on light paper.
    Light,
    /// Light text on dark paper.
    Dark,
}

/// One window of a browser.
#[derive(Debug)]
pub struct Browser {
    driver: Process,
    client: reqwest::Client,
    program: PathBuf,
    /// The URL of the session, without a slash at its end.
    session: String,
}

impl Browser {
    /// Starts a browser that reaches 127.0.0.1 and nothing else: all other requests go to a proxy
    /// that is not there.
    ///
    /// # Errors
    /// [`PartError::Unavailable`] if the machine has no Chromium and may not install it.
    pub async fn start(folder: &Path) -> Result<Self, TestError> {
        let (browser, driver) = find_programs().await?;
        let (port, proxy) = (free_port()?, free_port()?);
        let spec = ProcessSpec {
            name: "chromedriver".to_owned(),
            program: driver,
            args: vec![OsString::from(format!("--port={port}"))],
            env: Vec::new(),
            log: folder.join("chromedriver.log"),
        };
        let driver = Process::spawn(&spec).await?;
        let client = plain_client()?;
        let url = format!("http://127.0.0.1:{port}");
        let is_ready = || async {
            let status = client.get(format!("{url}/status")).send().await;
            Ok(status.is_ok_and(|reply| reply.status().is_success()))
        };
        until("chromedriver is ready", READY_WITHIN, is_ready).await?;
        let wanted = capabilities(&browser, &folder.join("profile"), proxy);
        let mut started = Self {
            driver,
            client,
            program: browser,
            session: url,
        };
        let session = started.send(Method::POST, "/session", &wanted).await?;
        let id = session["sessionId"].as_str().ok_or("no session id")?;
        started.session = format!("{}/session/{id}", started.session);
        Ok(started)
    }

    /// The program itself, for a tool that starts its own.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The end of the driver's log.
    pub fn logs_tail(&self) -> String {
        self.driver.logs_tail(20)
    }

    /// Opens a page and waits until it is loaded.
    pub async fn open(&self, url: &str) -> Result<(), TestError> {
        self.send(Method::POST, "/url", &json!({ "url": url }))
            .await?;
        Ok(())
    }

    /// Runs the body of a function in the page, and returns its result.
    pub async fn execute(&self, body: &str) -> Result<Value, TestError> {
        let script = json!({ "script": body, "args": [] });
        self.send(Method::POST, "/execute/sync", &script).await
    }

    /// Runs the body of a function whose last argument takes the result.
    pub async fn execute_async(&self, body: &str) -> Result<Value, TestError> {
        let script = json!({ "script": body, "args": [] });
        self.send(Method::POST, "/execute/async", &script).await
    }

    /// Sets the size of the page in CSS pixels, also below the least size of a window.
    pub async fn set_viewport(&self, width: u32, height: u32) -> Result<(), TestError> {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call_devtools("Emulation.setDeviceMetricsOverride", &metrics)
            .await
    }

    /// Sets the colours that the reader prefers.
    pub async fn set_color_scheme(&self, scheme: ColorScheme) -> Result<(), TestError> {
        let value = match scheme {
            ColorScheme::Light => "light",
            ColorScheme::Dark => "dark",
        };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call_devtools("Emulation.setEmulatedMedia", &media)
            .await
    }

    /// Presses the key Tab.
    pub async fn press_tab(&self) -> Result<(), TestError> {
        let press = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": [
            { "type": "keyDown", "value": TAB },
            { "type": "keyUp", "value": TAB },
        ] }] });
        self.send(Method::POST, "/actions", &press).await?;
        Ok(())
    }

    /// What the page looks like, as PNG.
    pub async fn screenshot(&self) -> Result<Vec<u8>, TestError> {
        let image = self.send(Method::GET, "/screenshot", &Value::Null).await?;
        Ok(STANDARD.decode(image.as_str().ok_or("no screenshot")?)?)
    }

    /// The URLs of all requests since the last call, also of those that a policy stopped.
    pub async fn requested_urls(&self) -> Result<Vec<String>, TestError> {
        let log = self
            .send(Method::POST, "/se/log", &json!({ "type": "performance" }))
            .await?;
        let mut urls = Vec::new();
        for entry in log.as_array().ok_or("no log")? {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap_or("null"))?;
            let event = &message["message"];
            if event["method"] == "Network.requestWillBeSent"
                && let Some(url) = event["params"]["request"]["url"].as_str()
            {
                urls.push(url.to_owned());
            }
        }
        Ok(urls)
    }

    async fn call_devtools(&self, method: &str, parameters: &Value) -> Result<(), TestError> {
        let command = json!({ "cmd": method, "params": parameters });
        self.send(Method::POST, "/goog/cdp/execute", &command)
            .await?;
        Ok(())
    }

    /// Sends a command, and returns its value.
    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, TestError> {
        let mut request = self
            .client
            .request(method.clone(), format!("{}{path}", self.session));
        if method != Method::GET {
            request = request.json(body);
        }
        let reply = request.send().await?;
        let status = reply.status();
        let mut reply: Value = reply.json().await?;
        if status.is_success() {
            return Ok(reply["value"].take());
        }
        Err(format!(
            "{path}: {} {}",
            reply["value"]["error"], reply["value"]["message"]
        )
        .into())
    }
}

/// What the session is to be: no screen, no background requests, and a log of every request.
fn capabilities(browser: &Path, profile: &Path, proxy: u16) -> Value {
    let arguments = [
        "--headless=new".to_owned(),
        // A sandbox needs rights that a test in a container does not have. The pages are our own.
        "--no-sandbox".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        "--disable-background-networking".to_owned(),
        "--disable-component-update".to_owned(),
        "--hide-scrollbars".to_owned(),
        "--force-device-scale-factor=1".to_owned(),
        format!("--user-data-dir={}", profile.display()),
        format!("--proxy-server=http://127.0.0.1:{proxy}"),
    ];
    json!({ "capabilities": { "alwaysMatch": {
        "goog:chromeOptions": { "binary": browser, "args": arguments },
        "goog:loggingPrefs": { "performance": "ALL" },
        "timeouts": { "script": 60_000 },
    } } })
}

/// The browser and its driver. Root installs Debian's packages if they are missing.
async fn find_programs() -> Result<(PathBuf, PathBuf), TestError> {
    let programs = || Some((find_in_path("chromium")?, find_in_path("chromedriver")?));
    if let Some(programs) = programs() {
        return Ok(programs);
    }
    let unavailable = |why: String| PartError::Unavailable {
        part: "chromium and chromedriver",
        version: "of any version",
        why: format!("{why}; fix: install the packages chromium and chromium-driver"),
    };
    if !rustix::process::geteuid().is_root() {
        return Err(unavailable("only root may install them".to_owned()).into());
    }
    eprintln!("installing chromium once, about a minute");
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(PACKAGES);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    let installed = run_to_end(install, INSTALLED_WITHIN).await;
    installed.map_err(|error| unavailable(error.to_string()))?;
    Ok(programs().ok_or_else(|| unavailable("the packages have no such program".to_owned()))?)
}

fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
