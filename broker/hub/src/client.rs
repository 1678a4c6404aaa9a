//! The client of the hub's API: limited in time and size, without retries by the library, and with
//! errors that never repeat a secret.

mod access;
mod error;
mod proxy;

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use keyferry_api::foreign_text;
use kube::client::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

pub use self::access::{CALL_DEADLINE, HubAccess};
pub use self::error::ClientError;
use self::error::NamedParts;
pub use self::proxy::ProxyVariables;
use keyferry_platform::connection_fault::{ConnectionFault, Endpoint};
use keyferry_platform::gzip::{self, GzipError};

use crate::forbidden::{self, Forbidden, ForbiddenStatus, HubCaller};
use crate::ports::HubError;
use crate::streamed_json::BodyFault;
pub use crate::streamed_list::MAX_PAGE_BYTES;
use crate::streamed_list::{Page, PageSize, read_page};

/// How long a connection may be silent. The library counts from the last received byte, even while
/// no call is waiting, and would abort a call that began since. So this exceeds the time for which
/// an idle connection is kept (hyper-util: 90 s) plus one call.
const MAX_CONNECTION_SILENCE: Duration = Duration::from_secs(100);
/// The most pages of a list that are read, so that a list without end cannot block a command.
pub const MAX_PAGES: usize = 2_000;
/// Objects per page of a list of which only a part is read.
const PAGE_OBJECTS: u32 = 100;
/// The largest response body that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 3 * 1024 * 1024;

/// The terms of a server-side apply.
#[derive(Clone, Copy, Debug)]
pub struct ApplyTerms<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// What happens to fields of other managers.
    pub conflicts: Conflicts,
    /// Whether the result is stored.
    pub persistence: Persistence,
}

/// What a server-side apply does with fields that other managers own with other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// It fails and changes nothing.
    Refuse,
    /// It takes them over.
    TakeOver,
}

/// Whether a write is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It is.
    Stored,
    /// It is checked only, admission included.
    DryRun,
}

/// What was kept of a list that may have been longer.
#[derive(Debug)]
pub struct PartialList<U> {
    /// What was kept of the objects that were read.
    pub kept: Vec<U>,
    /// Whether the whole list was read. If not, what was not found may still exist.
    pub is_complete: bool,
}

/// A position in a list that is read page by page.
#[derive(Debug)]
pub struct ListCursor {
    accept: &'static str,
    size: PageSize,
    next: Option<String>,
    pages: usize,
    objects: usize,
    is_complete: bool,
}

impl ListCursor {
    /// Begins a list of pages of at most `page` objects.
    pub fn new(page: u32) -> Self {
        Self {
            accept: "application/json",
            size: PageSize::new(page),
            next: None,
            pages: 0,
            objects: 0,
            is_complete: false,
        }
    }

    /// Whether the last page was read.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

/// A client of the hub's API with limits on time and size.
#[derive(Clone)]
pub struct HubClient {
    client: kube::Client,
    /// Where the connections lead: to the hub, or to its proxy.
    endpoint: Option<Endpoint>,
    /// Whose credentials it has, for messages.
    caller: HubCaller,
}

impl HubClient {
    /// Creates a client with its own connections, and with the credentials of the user who runs the
    /// command.
    ///
    /// # Errors
    /// [`ClientError`]: the credentials, the certificates or the proxy cannot be used.
    pub fn new(mut config: kube::Config) -> Result<Self, ClientError> {
        config.read_timeout = Some(MAX_CONNECTION_SILENCE);
        config.write_timeout = Some(CALL_DEADLINE);
        let endpoint = url::Url::parse(&config.cluster_url.to_string())
            .ok()
            .as_ref()
            .and_then(Endpoint::of_url);
        let endpoint = endpoint.map(|endpoint| {
            let server_name = config.tls_server_name.as_deref();
            let named = server_name.map(|name| endpoint.clone().with_server_name(name));
            let named = named.unwrap_or(endpoint);
            let proxy = config.proxy_url.as_ref();
            match proxy.and_then(|url| Some((url.host()?, url.port_u16()?))) {
                Some((host, port)) => named.behind_proxy(host, port),
                None => named,
            }
        });
        let named = NamedParts::of(&config);
        let client =
            kube::Client::try_from(config).map_err(|error| named.into_client_error(&error))?;
        Ok(Self {
            client,
            endpoint,
            caller: HubCaller::User,
        })
    }

    /// Sets the owner of its credentials, as messages name it. By default, it is the user.
    #[must_use]
    pub fn called_by(self, caller: HubCaller) -> Self {
        Self { caller, ..self }
    }

    /// The host and port that the client connects to; `None` through a proxy.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        self.endpoint.as_ref().and_then(Endpoint::direct_address)
    }

    /// Sends a GET and returns the bytes of the response.
    ///
    /// # Errors
    /// [`HubError`] by the status of the response or the lack of one.
    pub async fn get(&self, path: &str, accept: &'static str) -> Result<Vec<u8>, HubError> {
        self.get_up_to(path, accept, MAX_ANSWER_BYTES).await
    }

    /// Sends a GET as [`HubClient::get`] does, and returns a response of up to `limit` bytes.
    ///
    /// # Errors
    /// As [`HubClient::get`].
    pub async fn get_up_to(
        &self,
        path: &str,
        accept: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, HubError> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(http::header::ACCEPT, accept)
            .body(Body::empty());
        self.call_api(request, "GET", limit).await
    }

    /// Sends a GET and parses the response as a JSON object.
    ///
    /// # Errors
    /// As [`HubClient::get`]; [`HubError::Unreadable`] if it is not such an object.
    pub async fn get_object<T: DeserializeOwned>(
        &self,
        path: &str,
        what: &'static str,
    ) -> Result<T, HubError> {
        let bytes = self.get(path, "application/json").await?;
        serde_json::from_slice(&bytes).map_err(|_| HubError::Unreadable(what))
    }

    /// Reads a list in pages of at most `page` objects, and returns what `keep` makes of them. A page
    /// is parsed while it arrives, and asked for again with fewer objects if it is too large, so
    /// that large objects do not make a list unreadable. `path` may have a query.
    ///
    /// # Errors
    /// As [`HubClient::get_object`]; [`HubError::Unreadable`] also for a list without end.
    pub async fn list<T: DeserializeOwned + Send + 'static, U>(
        &self,
        path: &str,
        page: u32,
        what: &'static str,
        keep: impl FnMut(T) -> Option<U>,
    ) -> Result<Vec<U>, HubError> {
        self.list_until_kept(path, page, usize::MAX, what, keep)
            .await
    }

    /// Reads a list as [`HubClient::list`] does, and asks for no further page once it has kept
    /// `most` objects.
    ///
    /// # Errors
    /// As [`HubClient::list`].
    pub async fn list_until_kept<T: DeserializeOwned + Send + 'static, U>(
        &self,
        path: &str,
        page: u32,
        most: usize,
        what: &'static str,
        keep: impl FnMut(T) -> Option<U>,
    ) -> Result<Vec<U>, HubError> {
        let is_enough = |_: usize, kept: usize| kept >= most;
        let cursor = ListCursor::new(page);
        let read = self.list_pages(path, cursor, is_enough, what, keep).await?;
        if read.is_complete || read.kept.len() >= most {
            Ok(read.kept)
        } else {
            Err(HubError::Unreadable(what))
        }
    }

    /// Reads a list as [`HubClient::list`] does, and asks for no further page after `most` objects.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn list_at_most<T: DeserializeOwned + Send + 'static, U>(
        &self,
        path: &str,
        most: usize,
        what: &'static str,
        keep: impl FnMut(T) -> Option<U>,
    ) -> Result<PartialList<U>, HubError> {
        let page = u32::try_from(most).unwrap_or(u32::MAX).min(PAGE_OBJECTS);
        self.list_pages(
            path,
            ListCursor::new(page),
            |objects: usize, _: usize| objects >= most,
            what,
            keep,
        )
        .await
    }

    /// Reads a list of a server that may send anything, until its end or until `visit` returns
    /// something, which is returned. `accept` is the media type to ask for. No page is larger than
    /// [`MAX_PAGE_BYTES`], not even one with a single object, so the objects may be read whole.
    ///
    /// # Errors
    /// As [`HubClient::list`]; [`HubError::TooLarge`] for a page of one object that is larger.
    pub async fn visit_list<T: DeserializeOwned + Send + 'static, U>(
        &self,
        path: &str,
        accept: &'static str,
        page: u32,
        visit: impl FnMut(T) -> Option<U>,
    ) -> Result<Option<U>, HubError> {
        let cursor = ListCursor {
            accept,
            size: PageSize::bounded(page),
            ..ListCursor::new(page)
        };
        let is_enough = |_: usize, kept: usize| kept > 0;
        let read = self.list_pages(path, cursor, is_enough, "list", visit);
        let read = read.await?;
        match read.kept.into_iter().next() {
            None if !read.is_complete => Err(HubError::Unreadable("list")),
            first => Ok(first),
        }
    }

    /// Reads the next page of a list, and returns what `keep` makes of its objects. Pages are
    /// parsed as by [`HubClient::list`].
    ///
    /// # Errors
    /// As [`HubClient::list`]. The list is to be begun again.
    pub async fn next_page<T: DeserializeOwned + Send + 'static, U>(
        &self,
        path: &str,
        cursor: &mut ListCursor,
        what: &'static str,
        keep: impl FnMut(T) -> Option<U>,
    ) -> Result<Vec<U>, HubError> {
        let page = self.page_at(path, cursor, what, keep).await?;
        page.ok_or(HubError::Unreadable(what))
    }

    async fn list_pages<T: DeserializeOwned + Send + 'static, U>(
        &self,
        path: &str,
        mut cursor: ListCursor,
        is_enough: impl Fn(usize, usize) -> bool,
        what: &'static str,
        mut keep: impl FnMut(T) -> Option<U>,
    ) -> Result<PartialList<U>, HubError> {
        let mut kept = Vec::new();
        while let Some(read) = self.page_at(path, &mut cursor, what, &mut keep).await? {
            kept.extend(read);
            if cursor.is_complete || is_enough(cursor.objects, kept.len()) {
                break;
            }
        }
        let is_complete = cursor.is_complete;
        Ok(PartialList { kept, is_complete })
    }

    /// Reads the page at the cursor; `None` after [`MAX_PAGES`].
    async fn page_at<T: DeserializeOwned + Send + 'static, U>(
        &self,
        path: &str,
        cursor: &mut ListCursor,
        what: &'static str,
        mut keep: impl FnMut(T) -> Option<U>,
    ) -> Result<Option<Vec<U>>, HubError> {
        while cursor.pages < MAX_PAGES {
            cursor.pages += 1;
            let path = page_path(path, cursor.size, cursor.next.as_deref());
            let (mut kept, mut objects) = (Vec::new(), 0_usize);
            let request = (path, cursor.accept);
            let reading = self.read_page(request, &mut cursor.size, what, |item| {
                objects = objects.saturating_add(1);
                kept.extend(keep(item));
            });
            let read = tokio::time::timeout(CALL_DEADLINE, reading).await;
            if let Page::Complete(end) = read.map_err(|_| deadline_error(what))?? {
                cursor.objects = cursor.objects.saturating_add(objects);
                cursor.next = end.next_token();
                cursor.is_complete = cursor.next.is_none();
                return Ok(Some(kept));
            }
        }
        Ok(None)
    }

    async fn read_page<T: DeserializeOwned + Send + 'static>(
        &self,
        (path, accept): (String, &'static str),
        size: &mut PageSize,
        what: &'static str,
        act: impl FnMut(T),
    ) -> Result<Page, HubError> {
        let request = Request::builder()
            .uri(path)
            .header(http::header::ACCEPT, accept)
            .body(Body::empty())
            .map_err(|_| HubError::Unreadable(what))?;
        let response = self.send_request(request).await?;
        let status = response.status();
        if !status.is_success() {
            let body = collect_body(response, MAX_ANSWER_BYTES).await?;
            return Err(error_of_status(status, &body, self.caller));
        }
        let page = read_page(response, size, act).await;
        page.map_err(|fault| match fault {
            BodyFault::Broken(_) => broken_off(),
            BodyFault::TooLarge => HubError::TooLarge,
            BodyFault::NotGzip => not_gzip(),
            BodyFault::Unreadable(_) | BodyFault::PackedWatch => HubError::Unreadable(what),
        })
    }

    /// Sends a POST of a JSON object and returns the created object.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn create<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        self.send_object(Method::POST, "application/json", path, object, what)
            .await
    }

    /// Sends a PUT of a JSON object, which replaces the version named by its `resourceVersion`.
    ///
    /// # Errors
    /// As [`HubClient::get_object`]; [`HubError::Conflict`] if that version is no longer current.
    pub async fn replace<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        self.send_object(Method::PUT, "application/json", path, object, what)
            .await
    }

    /// Sends a PATCH with a JSON merge patch (RFC 7396).
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn merge_patch<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        change: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        self.send_object(
            Method::PATCH,
            "application/merge-patch+json",
            path,
            change,
            what,
        )
        .await
    }

    /// Sends a PATCH by server-side apply of an object's fields, as field manager `manager`. Takes
    /// over fields that others own.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn apply<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        manager: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        let terms = ApplyTerms {
            manager,
            conflicts: Conflicts::TakeOver,
            persistence: Persistence::Stored,
        };
        self.apply_on(path, &terms, object, what).await
    }

    /// Sends a PATCH by server-side apply of an object's fields on these terms.
    ///
    /// # Errors
    /// As [`HubClient::get_object`]; [`HubError::Conflict`] if another manager owns a field with
    /// another value, and the terms refuse that.
    pub async fn apply_on<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        terms: &ApplyTerms<'_>,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        let force = terms.conflicts == Conflicts::TakeOver;
        let mut path = format!("{path}?fieldManager={}&force={force}", terms.manager);
        if terms.persistence == Persistence::DryRun {
            path.push_str("&dryRun=All");
        }
        // JSON is valid YAML, which this content type requires.
        self.send_object(
            Method::PATCH,
            "application/apply-patch+yaml",
            &path,
            object,
            what,
        )
        .await
    }

    /// Sends a DELETE with preconditions.
    ///
    /// # Errors
    /// As [`HubClient::get_object`].
    pub async fn delete<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        options: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        self.send_object(Method::DELETE, "application/json", path, options, what)
            .await
    }

    async fn send_object<Q: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        content_type: &'static str,
        path: &str,
        object: &Q,
        what: &'static str,
    ) -> Result<T, HubError> {
        let body =
            Zeroizing::new(serde_json::to_vec(object).map_err(|_| HubError::Unreadable(what))?);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(Body::from(body.to_vec()));
        let bytes = self.call_api(request, what, MAX_ANSWER_BYTES).await?;
        serde_json::from_slice(&bytes).map_err(|_| HubError::Unreadable(what))
    }

    async fn call_api(
        &self,
        request: Result<Request<Body>, http::Error>,
        what: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, HubError> {
        let request = request.map_err(|_| HubError::Unreadable(what))?;
        // One deadline for the whole call. A per-read timeout would never fire for a server that
        // sends one byte per second.
        let answered =
            tokio::time::timeout(CALL_DEADLINE, self.exchange_bytes(request, limit)).await;
        let (status, bytes) = answered.map_err(|_| deadline_error(what))??;
        if status.is_success() {
            Ok(bytes)
        } else {
            Err(error_of_status(status, &bytes, self.caller))
        }
    }

    async fn exchange_bytes(
        &self,
        request: Request<Body>,
        limit: usize,
    ) -> Result<(StatusCode, Vec<u8>), HubError> {
        let response = self.send_request(request).await?;
        let status = response.status();
        Ok((status, collect_body(response, limit).await?))
    }

    async fn send_request(&self, request: Request<Body>) -> Result<Response<Body>, HubError> {
        match self.client.send(request).await {
            Ok(response) => Ok(response),
            Err(error) => Err(transport_fault(&error, self).await),
        }
    }
}

/// The path of a page of a list, after the one with this token.
fn page_path(path: &str, size: PageSize, next: Option<&str>) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    let begin = format!("{path}{separator}");
    let length = begin.len();
    let mut query = url::form_urlencoded::Serializer::for_suffix(begin, length);
    query.append_pair("limit", &size.limit().to_string());
    query.extend_pairs(next.map(|token| ("continue", token)));
    query.finish()
}

/// Collects a body up to a limit in bytes. A gateway before the hub may have packed it.
async fn collect_body(response: Response<Body>, limit: usize) -> Result<Vec<u8>, HubError> {
    let is_packed = gzip::is_packed(response.headers());
    let body = Limited::new(response.into_body(), limit).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            HubError::TooLarge
        } else {
            broken_off()
        }
    })?;
    let body = body.to_bytes();
    if !is_packed {
        return Ok(body.into());
    }
    gzip::unpack_gzip(&body, limit).map_err(|error| match error {
        GzipError::TooLong => HubError::TooLarge,
        GzipError::Malformed => not_gzip(),
    })
}

fn not_gzip() -> HubError {
    HubError::Unreachable(GzipError::Malformed.to_string())
}

fn deadline_error(what: &str) -> HubError {
    HubError::Unreachable(format!("{what} took longer than {CALL_DEADLINE:?}"))
}

fn broken_off() -> HubError {
    HubError::Unreachable("its answer broke off".to_owned())
}

/// Names the kind of fault without repeating the library's text, which may quote credentials of the
/// configuration.
async fn transport_fault(error: &kube::Error, client: &HubClient) -> HubError {
    match error {
        // The caller's configuration is at fault, so this proves nothing about the hub.
        kube::Error::Auth(_) => HubError::Unauthenticated(format!(
            "the credentials of {} could not be read",
            client.caller
        )),
        kube::Error::Service(_) | kube::Error::HyperError(_) => HubError::Unreachable(
            ConnectionFault::diagnose(error, client.endpoint.as_ref())
                .await
                .text,
        ),
        _ => HubError::Unreachable("the request could not be sent".to_owned()),
    }
}

fn error_of_status(status: StatusCode, body: &[u8], caller: HubCaller) -> HubError {
    let mut parsed: ForbiddenStatus = serde_json::from_slice(body).unwrap_or_default();
    if parsed.message.is_empty() {
        parsed.message = format!("HTTP {}", status.as_u16());
    }
    let message = foreign_text::one_line(&parsed.message, 400);
    match status.as_u16() {
        401 => HubError::Unauthenticated(message),
        403 => HubError::Forbidden(Forbidden::from(parsed).for_caller(caller)),
        404 => HubError::NotFound(message),
        409 => HubError::Conflict(message),
        422 if forbidden::policy_is_not_ready(&message) => HubError::PolicyNotReady(message),
        429 | 500.. => HubError::Overloaded(format!("HTTP {}: {message}", status.as_u16())),
        _ => HubError::Refused(message),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use std::io::Write;
    use std::time::Duration;

    use http::Response;
    use keyferry_testing::{EmbeddedHub, Fault, HubOptions, Route};
    use kube::client::Body;
    use secrecy::ExposeSecret;

    use super::{CALL_DEADLINE, HubAccess, MAX_ANSWER_BYTES, collect_body};
    use crate::ports::HubError;

    /// The pause and the second call together exceed the deadline of one call; each alone does not.
    #[tokio::test]
    async fn a_call_has_its_whole_time_however_long_ago_the_one_before_it_was() {
        let hub = EmbeddedHub::start(HubOptions::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, hub.kubeconfig().expose_secret()).unwrap();
        let access = HubAccess {
            kubeconfig: Some(kubeconfig),
            ..HubAccess::default()
        };
        let client = access.client().await.unwrap();
        let read = async || {
            client
                .get("/openid/v1/jwks", "application/jwk-set+json")
                .await
        };
        read().await.unwrap();
        let pause = Duration::from_millis(3500);
        hub.set_fault(
            Route::Jwks,
            Fault::Delay(CALL_DEADLINE - pause + Duration::from_secs(1)),
        );
        tokio::time::sleep(pause).await;
        read().await.unwrap();
    }

    /// A gateway before the hub may pack what nobody asked it to.
    #[tokio::test]
    async fn a_body_in_gzip_is_unpacked_up_to_the_largest_size() {
        let answer = |body: &[u8]| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(body).unwrap();
            let packed = encoder.finish().unwrap();
            assert!(packed.len() < 100_000);
            let response = Response::builder().header(http::header::CONTENT_ENCODING, "gzip");
            collect_body(response.body(Body::from(packed)).unwrap(), MAX_ANSWER_BYTES)
        };
        assert_eq!(answer(b"{}").await.unwrap(), b"{}");
        let longest = vec![b' '; MAX_ANSWER_BYTES];
        assert_eq!(answer(&longest).await.unwrap(), longest);
        let longer = vec![b' '; MAX_ANSWER_BYTES + 1];
        assert!(matches!(answer(&longer).await, Err(HubError::TooLarge)));
    }
}
