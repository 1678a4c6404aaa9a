//! A browser, and a server with the pages of three fleets.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use jiff::SignedDuration;
use keyferry_api::foreign_text::ForeignText;
use keyferry_fleet::facts::{Fleet, ReadFailure};
use keyferry_integration::browser::{Browser, ColorScheme};
use keyferry_integration::parts::Parts;
use keyferry_integration::parts::installed::Client;
use keyferry_integration::ports::bound_listener;
use keyferry_integration::runner::{Fixture, NotStarted, TestError};
use keyferry_pages::testing::{empty_fleet, judged_at, refused_list, sample_fleet, sample_reach};
use keyferry_pages::{reach_file, viewer_content_security_policy, viewer_page, whole_file};
use parking_lot::Mutex;
use tempfile::TempDir;

/// Each page of a fleet with everything, and the states of the others.
pub(super) const PAGES: [&str; 19] = [
    "sample/fleet",
    "sample/fleet?sort=name",
    "sample/fleet?q=nowhere&state=broken",
    "sample/tenants",
    "sample/expiry",
    "sample/keys",
    "sample/denials",
    "sample/target/prod-us",
    "sample/target/registry",
    "sample/tenant/tenant-a",
    "sample/nowhere",
    "sample/file",
    "empty/fleet",
    "empty/denials",
    "troubled/fleet",
    "troubled/keys",
    "troubled/denials",
    "troubled/file",
    REACH,
];

/// The answers to a question about reach, which is one file without navigation.
pub(super) const REACH: &str = "reach/file";

/// As long as names of users and bindings become.
const LONG_NAME: &str = "RoleBinding tenant-a/platform-team-deployers → ClusterRole \
    keyferry-tenant-reconciler, rule 12: create serviceaccounts/token in tenant-a";

/// The fleets by the first part of the path, and what was requested.
struct Pages {
    fleets: [(&'static str, Fleet); 3],
    requests: Mutex<Vec<String>>,
}

pub(super) struct Stage {
    pub(super) browser: Browser,
    /// The script with axe's rules.
    pub(super) axe: PathBuf,
    pages: Arc<Pages>,
    address: String,
    _folder: TempDir,
}

impl Fixture for Stage {
    fn log_tails(&self) -> String {
        self.browser.logs_tail()
    }
}

impl Stage {
    pub(super) async fn start() -> Result<Self, NotStarted> {
        Self::start_all().await.map_err(NotStarted::failed)
    }

    async fn start_all() -> Result<Self, TestError> {
        let folder = tempfile::tempdir()?;
        let axe = Parts::from_environment().install(Client::Axe).await?;
        let axe = axe.arguments.first().ok_or("no file of axe")?.into();
        let browser = Browser::start(folder.path()).await?;
        let pages = Arc::new(Pages {
            fleets: [
                ("sample", sample_fleet()),
                ("empty", empty_fleet()),
                ("troubled", troubled_fleet()),
            ],
            requests: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::from_std(bound_listener()?)?;
        let address = format!("http://{}", listener.local_addr()?);
        let router = Router::new()
            .fallback(serve_page)
            .with_state(Arc::clone(&pages));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self {
            browser,
            axe,
            pages,
            address,
            _folder: folder,
        })
    }

    /// The URL of a page.
    pub(super) fn url(&self, page: &str) -> String {
        format!("{}/{page}", self.address)
    }

    /// Opens a page for a reader with this width and these colours.
    pub(super) async fn show(
        &self,
        page: &str,
        width: u32,
        scheme: ColorScheme,
    ) -> Result<(), TestError> {
        self.browser.set_viewport(width, super::HEIGHT).await?;
        self.browser.set_color_scheme(scheme).await?;
        self.browser.open(&self.url(page)).await
    }

    /// What the server was asked for.
    pub(super) fn requests(&self) -> Vec<String> {
        self.pages.requests.lock().clone()
    }
}

/// A fleet of which much was not readable, read before the hub stopped.
fn troubled_fleet() -> Fleet {
    let mut fleet = sample_fleet();
    fleet.reading.read_at = judged_at() - SignedDuration::from_mins(31);
    fleet.reading.failed = Some(ReadFailure {
        at: judged_at(),
        message: ForeignText::new("error sending request: connection refused"),
        fix: "check that the hub answers: kubectl get --raw /readyz".to_owned(),
    });
    fleet.gaps = vec![
        refused_list("secrets", "when keys were published, and which sign"),
        refused_list("pods/log", "what was refused, and to whom"),
    ];
    fleet.keys.journal_read = false;
    fleet.denials = Default::default();
    fleet
}

/// Answers as the viewer does: the page, its policy, and nothing that a browser may keep.
async fn serve_page(State(pages): State<Arc<Pages>>, request: Request) -> Response {
    let uri = request.uri();
    pages.requests.lock().push(uri.to_string());
    let (name, path) = uri
        .path()
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or_default();
    let fleet = pages.fleets.iter().find(|(fleet, _)| *fleet == name);
    let (status, html, policy) = match fleet {
        None if name == "reach" => (200, reach_file(&sample_reach(LONG_NAME)), String::new()),
        None => (404, String::new(), viewer_content_security_policy()),
        // As it is opened from a disk: its policy is inside.
        Some((_, fleet)) if path == "file" => (200, whole_file(fleet), String::new()),
        Some((_, fleet)) => {
            let page = viewer_page(fleet, path, uri.query().unwrap_or_default());
            let status = if page.exists { 200 } else { 404 };
            (status, page.html, viewer_content_security_policy())
        }
    };
    let mut response = Response::new(Body::from(html));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(
        "content-type",
        http::HeaderValue::from_static("text/html; charset=utf-8"),
    );
    if let Ok(policy) = http::HeaderValue::from_str(&policy)
        && !policy.is_empty()
    {
        headers.insert("content-security-policy", policy);
    }
    response
}
