//! Answers the requests of the viewer's one reader.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode};
use keyferry_fleet::facts::Fleet;
use keyferry_listener::LocalService;
use keyferry_pages::{READ_AGAIN_PATH, viewer_content_security_policy, viewer_page};
use keyferry_platform::random::Random;
use keyferry_platform::secret_code::{NoRandomness, SecretCode};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answers::{page_answer, plain_answer, redirection, with_headers};
use super::current_facts::CurrentFacts;
use super::guard::refuse_request;
use super::page_path::{FIRST_PAGE, is_page_path, page_after_reading};

/// How long the viewer lives without a request of its reader.
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(60 * 60);
/// How many pages are made at the same time: each takes one processor.
const MAX_CONCURRENT_PAGES: usize = 2;
/// The first segment of the one-time link.
const LINK_SEGMENT: &str = "open";

/// What the viewer knows and shows. It stores no page.
pub(crate) struct Viewer {
    /// `127.0.0.1:PORT`.
    authority: String,
    link: OneTimeLink,
    /// The first segment of each page's path. There is no cookie: cookies ignore ports, so another
    /// local server would get it.
    session: SecretCode,
    facts: Arc<CurrentFacts>,
    policy: HeaderValue,
    page_permits: Semaphore,
    last_request: Mutex<Instant>,
}

/// The link that the command prints. It opens the session once.
struct OneTimeLink {
    code: SecretCode,
    used: AtomicBool,
}

impl Viewer {
    /// Creates a viewer for a listener on this port.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub(crate) fn new(
        port: u16,
        facts: CurrentFacts,
        random: &dyn Random,
    ) -> Result<Self, NoRandomness> {
        let policy = viewer_content_security_policy();
        Ok(Self {
            authority: format!("127.0.0.1:{port}"),
            link: OneTimeLink {
                code: SecretCode::generate(random)?,
                used: AtomicBool::new(false),
            },
            session: SecretCode::generate(random)?,
            facts: Arc::new(facts),
            // A policy that is no header would allow everything; nothing is the safe default.
            policy: HeaderValue::from_str(&policy)
                .unwrap_or(HeaderValue::from_static("default-src 'none'")),
            page_permits: Semaphore::new(MAX_CONCURRENT_PAGES),
            last_request: Mutex::new(Instant::now()),
        })
    }

    /// The URL that opens the session, once.
    pub(crate) fn link(&self) -> String {
        let code = self.link.code.expose();
        format!("http://{}/{LINK_SEGMENT}/{code}", self.authority)
    }

    /// The facts that it shows.
    pub(crate) fn judged_facts(&self) -> Arc<Fleet> {
        self.facts.judged_facts()
    }

    /// Ends once the reader has sent no request for [`IDLE_LIMIT`].
    pub(crate) async fn until_idle(&self) {
        loop {
            let last = *self.lock_last_request();
            let end = last + IDLE_LIMIT;
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    async fn answer_path(&self, path: &str, query: &str) -> Response<String> {
        let Some((first, rest)) = path.strip_prefix('/').and_then(|path| path.split_once('/'))
        else {
            return no_page();
        };
        if first == LINK_SEGMENT {
            return self.answer_link(rest);
        }
        if !self.session.matches(first) {
            return no_page();
        }
        // Only requests with the session keep the viewer alive.
        *self.lock_last_request() = Instant::now();
        if rest == READ_AGAIN_PATH {
            self.facts.read_again().await;
            return self.redirect_to(&page_after_reading(query));
        }
        if !is_page_path(rest) {
            return no_page();
        }
        self.answer_page(rest.to_owned(), query.to_owned()).await
    }

    fn answer_link(&self, code: &str) -> Response<String> {
        if !self.link.code.matches(code) {
            return no_page();
        }
        if self.link.used.swap(true, Ordering::SeqCst) {
            return plain_answer(
                StatusCode::GONE,
                "this link was used already; start keyferry dashboard again for a new one\n",
            );
        }
        *self.lock_last_request() = Instant::now();
        self.redirect_to(FIRST_PAGE)
    }

    fn redirect_to(&self, page: &str) -> Response<String> {
        redirection(&format!("/{}/{page}", self.session.expose()))
    }

    async fn answer_page(&self, path: String, query: String) -> Response<String> {
        let failed = || {
            plain_answer(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the page could not be made\n",
            )
        };
        let Ok(_permit) = self.page_permits.acquire().await else {
            return failed();
        };
        let facts = Arc::clone(&self.facts);
        let page =
            tokio::task::spawn_blocking(move || viewer_page(&facts.judged_facts(), &path, &query));
        match page.await {
            Ok(page) if page.exists => page_answer(StatusCode::OK, page.html),
            Ok(page) => page_answer(StatusCode::NOT_FOUND, page.html),
            Err(_) => failed(),
        }
    }

    fn lock_last_request(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.last_request
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalService for Viewer {
    fn answer_request(&self, request: Request<()>) -> BoxFuture<'_, Response<String>> {
        Box::pin(async move {
            let answer = match refuse_request(&request, &self.authority) {
                Some(refusal) => refusal,
                None => {
                    let uri = request.uri();
                    self.answer_path(uri.path(), uri.query().unwrap_or_default())
                        .await
                }
            };
            with_headers(answer, &self.policy)
        })
    }
}

fn no_page() -> Response<String> {
    plain_answer(
        StatusCode::NOT_FOUND,
        "there is no page here; open the link that keyferry dashboard printed\n",
    )
}
