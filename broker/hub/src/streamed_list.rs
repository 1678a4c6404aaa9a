//! One page of a list, parsed item by item while it arrives.

use std::fmt;
use std::ops::ControlFlow;

use http::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use keyferry_platform::gzip::{self, GzipError};
use kube::client::Body;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::streamed_json::{BodyFault, BodyReader, Items, parse_body};

/// The largest page, in bytes, unless it has one object only. A larger one is asked for again with
/// fewer objects.
pub const MAX_PAGE_BYTES: u64 = 8 * 1024 * 1024;

/// What a page says besides its items.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageEnd {
    /// The version of the whole list.
    pub(crate) resource_version: Option<String>,
    /// The token for the next page; none or empty on the last one.
    #[serde(rename = "continue")]
    pub(crate) next: Option<String>,
}

impl PageEnd {
    /// The token for the next page; `None` after the last one.
    pub(crate) fn next_token(self) -> Option<String> {
        self.next.filter(|token| !token.is_empty())
    }
}

/// How many objects the next page should have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageSize {
    limit: u32,
    max: u32,
    /// Whether a page of one object has a limit too, because its objects are kept whole.
    is_bounded: bool,
}

impl PageSize {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            limit: most,
            max: most,
            is_bounded: false,
        }
    }

    /// The same, with a limit in bytes for a page of one object too.
    pub(crate) fn bounded(max: u32) -> Self {
        Self {
            is_bounded: true,
            ..Self::new(max)
        }
    }

    /// The objects to ask for.
    pub(crate) fn limit(self) -> u32 {
        self.limit
    }

    /// The bytes that the page may have. A page of one object is parsed to its end: only what is
    /// kept of the object takes memory, and there is no smaller page.
    fn max_bytes(self) -> u64 {
        if self.limit > 1 || self.is_bounded {
            MAX_PAGE_BYTES
        } else {
            u64::MAX
        }
    }

    /// Makes the next page smaller after one that was too large.
    fn shrink(&mut self) {
        self.limit = (self.limit / 4).max(1);
    }

    /// Makes the next page larger after one that was far below the limit.
    fn grow(&mut self, bytes: u64) {
        if bytes < MAX_PAGE_BYTES / 2 {
            self.limit = self.limit.saturating_mul(2).min(self.max);
        }
    }
}

/// A page that was read.
pub(crate) enum Page {
    /// All its items were passed on.
    Complete(PageEnd),
    /// It is larger than [`MAX_PAGE_BYTES`]. Some of its items were passed on, and will be again:
    /// the page has to be asked for again with the smaller size.
    TooLarge,
}

/// Reads a page and passes its items to `act`. One that a gateway before the hub packed is unpacked
/// to at most [`MAX_PAGE_BYTES`] first.
///
/// # Errors
/// [`BodyFault`]; [`BodyFault::TooLarge`] only for a page of one object that is packed, or bounded.
pub(crate) async fn read_page<T: DeserializeOwned + Send + 'static>(
    response: Response<Body>,
    size: &mut PageSize,
    mut act: impl FnMut(T),
) -> Result<Page, BodyFault> {
    let body = if gzip::is_packed(response.headers()) {
        match unpack_body(response.into_body()).await {
            Ok(body) => Body::from(body),
            Err(BodyFault::TooLarge) if size.limit > 1 => {
                size.shrink();
                return Ok(Page::TooLarge);
            }
            Err(fault) => return Err(fault),
        }
    } else {
        response.into_body()
    };
    let act = |item| {
        act(item);
        ControlFlow::Continue(())
    };
    match parse_body(body, size.max_bytes(), parse_page::<T>, act).await {
        Ok(parsed) => {
            size.grow(parsed.bytes);
            Ok(Page::Complete(parsed.result.unwrap_or_default()))
        }
        Err(BodyFault::TooLarge) if size.limit > 1 => {
            size.shrink();
            Ok(Page::TooLarge)
        }
        Err(fault) => Err(fault),
    }
}

async fn unpack_body(body: Body) -> Result<Vec<u8>, BodyFault> {
    let limit = usize::try_from(MAX_PAGE_BYTES).unwrap_or(usize::MAX);
    let packed = Limited::new(body, limit).collect().await;
    let packed = packed.map_err(|error| match error.downcast::<kube::Error>() {
        Ok(error) => BodyFault::Broken(*error),
        Err(error) if error.is::<LengthLimitError>() => BodyFault::TooLarge,
        Err(error) => BodyFault::Broken(kube::Error::Service(error)),
    })?;
    gzip::unpack_gzip(&packed.to_bytes(), limit).map_err(|error| match error {
        GzipError::TooLong => BodyFault::TooLarge,
        GzipError::Malformed => BodyFault::NotGzip,
    })
}

fn parse_page<T: DeserializeOwned>(
    reader: BodyReader<'_>,
    items: &Items<T>,
) -> Result<PageEnd, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(reader);
    let end = ListSeed(items).deserialize(&mut json)?;
    // To the end of the body, so that the connection can be used again.
    json.end()?;
    Ok(end)
}

struct ListSeed<'a, T>(&'a Items<T>);

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for ListSeed<'_, T> {
    type Value = PageEnd;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PageEnd, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for ListSeed<'_, T> {
    type Value = PageEnd;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<PageEnd, A::Error> {
        let mut end = PageEnd::default();
        while let Some(key) = all.next_key::<String>()? {
            match key.as_str() {
                "metadata" => end = all.next_value()?,
                "items" => all.next_value_seed(ItemsSeed(self.0))?,
                _ => drop(all.next_value::<IgnoredAny>()?),
            }
        }
        Ok(end)
    }
}

struct ItemsSeed<'a, T>(&'a Items<T>);

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for ItemsSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for ItemsSeed<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    /// An empty list may be null: Go writes a nil slice so.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while let Some(item) = all.next_element::<T>()? {
            self.0.pass_item(item)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use http::Response;
    use kube::client::Body;
    use serde_json::Value;

    use super::{BodyFault, MAX_PAGE_BYTES, Page, PageSize, read_page};

    /// Reads a page of at most `limit` objects that says it is gzip.
    async fn read_packed(body: Vec<u8>, limit: u32) -> (Result<Page, BodyFault>, Vec<Value>, u32) {
        let response = Response::builder().header(http::header::CONTENT_ENCODING, "gzip");
        let response = response.body(Body::from(body)).unwrap();
        let (mut size, mut items) = (PageSize::new(limit), Vec::new());
        let page = read_page(response, &mut size, |item| items.push(item)).await;
        (page, items, size.limit())
    }

    #[tokio::test]
    async fn a_page_in_gzip_is_unpacked_to_the_largest_size() {
        let packed = |text: &[u8]| {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let list = br#"{"metadata":{"continue":"x"},"items":[1,2]}"#;
        let (page, items, _) = read_packed(packed(list), 100).await;
        let Ok(Page::Complete(end)) = page else {
            panic!("the page was not read");
        };
        assert_eq!(end.next_token().as_deref(), Some("x"));
        assert_eq!(items, [1, 2]);
        let bomb = packed(&vec![b' '; 9 << 20]);
        let (page, _, limit) = read_packed(bomb.clone(), 100).await;
        assert!(matches!(page, Ok(Page::TooLarge)) && limit == 25);
        let (page, _, _) = read_packed(bomb, 1).await;
        assert!(matches!(page, Err(BodyFault::TooLarge)));
        let (page, _, _) = read_packed(list.to_vec(), 100).await;
        assert!(matches!(page, Err(BodyFault::NotGzip)));
    }

    #[test]
    fn pages_shrink_to_one_object_and_grow_again() {
        let mut size = PageSize::new(100);
        let mut limits = Vec::new();
        while size.max_bytes() == MAX_PAGE_BYTES {
            limits.push(size.limit());
            size.shrink();
        }
        assert_eq!((limits, size.limit()), (vec![100, 25, 6], 1));
        size.grow(MAX_PAGE_BYTES);
        assert_eq!(size.limit(), 1, "the objects are still large");
        for _ in 0..10 {
            size.grow(1000);
        }
        assert_eq!(
            size.limit(),
            100,
            "one tenant's objects do not slow every list for ever"
        );
    }
}
