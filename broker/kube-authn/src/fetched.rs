//! What a document's server answered. The caller fetches; nothing here does.

/// The result of fetching a document anonymously.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fetched {
    /// The document's URL is unknown.
    #[default]
    NotTried,
    /// There was no connection or no response; the text says which.
    Unreachable(String),
    /// The given CA did not sign the server's certificate.
    Untrusted(String),
    /// Nothing was sent, because of the server's address; the text says which.
    AddressRefused(String),
    /// The server responded.
    Response(HttpResponse),
}

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status code.
    pub status: u16,
    /// The body; the fetching code limits its size.
    pub body: Vec<u8>,
}
