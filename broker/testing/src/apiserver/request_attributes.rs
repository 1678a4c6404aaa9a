//! What a request does to what, in the terms of an authorizer.

use axum::http::{Method, Uri};

/// The verb of a request, and the object of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestAttributes {
    pub(crate) verb: String,
    pub(crate) object: RequestObject,
}

/// What a verb is applied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestObject {
    /// A resource of the API.
    Resource(ResourcePath),
    /// Any other path, such as `/version`.
    Path(String),
}

/// A resource, with empty texts for what a request does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ResourcePath {
    /// `RESOURCE`, or `RESOURCE/SUBRESOURCE`.
    pub(crate) fn combined(&self) -> String {
        if self.subresource.is_empty() {
            return self.resource.clone();
        }
        format!("{}/{}", self.resource, self.subresource)
    }
}

impl RequestAttributes {
    /// The attributes of a verb on a resource.
    pub(crate) fn on(verb: impl Into<String>, resource: ResourcePath) -> Self {
        Self {
            verb: verb.into(),
            object: RequestObject::Resource(resource),
        }
    }

    /// The attributes of an HTTP request, as `RequestInfoFactory` of kube-apiserver finds them.
    /// The old paths with `watch/` or `proxy/` before the resource are not supported.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Self {
        let path = uri.path();
        let mut parts = path.trim_matches('/').split('/');
        let resource = match parts.next() {
            Some("api") => resource("", parts.skip(1)),
            Some("apis") => match parts.next() {
                Some(group) if !group.is_empty() => resource(group, parts.skip(1)),
                _ => None,
            },
            _ => None,
        };
        let Some(resource) = resource else {
            return Self {
                verb: method.as_str().to_lowercase(),
                object: RequestObject::Path(path.to_owned()),
            };
        };
        let one = !resource.name.is_empty();
        let verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD if one => "get",
            Method::GET | Method::HEAD if watches(uri) => "watch",
            Method::GET | Method::HEAD => "list",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if one => "delete",
            Method::DELETE => "deletecollection",
            _ => "",
        };
        Self::on(verb, resource)
    }

    /// The namespace; empty for what is in none.
    pub(crate) fn namespace(&self) -> &str {
        match &self.object {
            RequestObject::Resource(resource) => &resource.namespace,
            RequestObject::Path(_) => "",
        }
    }
}

/// Reads the parts of a path behind the version.
fn resource<'a>(group: &str, parts: impl Iterator<Item = &'a str>) -> Option<ResourcePath> {
    let mut parts: Vec<&str> = parts.collect();
    let mut namespace = "";
    if let ["namespaces", name, rest @ ..] = parts.as_slice() {
        namespace = *name;
        // `status` and `finalize` are of the namespace itself.
        if !rest.is_empty() && !matches!(rest[0], "status" | "finalize") {
            parts = rest.to_vec();
        }
    }
    let part = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
    (!part(0).is_empty()).then(|| ResourcePath {
        group: group.to_owned(),
        resource: part(0),
        subresource: part(2),
        namespace: namespace.to_owned(),
        name: part(1),
    })
}

fn watches(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "watch" && !matches!(&*value, "false" | "0"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_kube_apiserver_does() {
        for (method, uri, expected) in [
            (Method::GET, "/version", "get /version"),
            (Method::HEAD, "/livez/ping", "head /livez/ping"),
            (Method::GET, "/", "get /"),
            (Method::GET, "/api", "get /api"),
            (Method::GET, "/api/v1", "get /api/v1"),
            (Method::GET, "/apis/apps/v1", "get /apis/apps/v1"),
            (Method::GET, "/api/v1/namespaces", "list |namespaces|||"),
            (
                Method::GET,
                "/api/v1/namespaces?watch=true",
                "watch |namespaces|||",
            ),
            (
                Method::GET,
                "/api/v1/namespaces?watch=0",
                "list |namespaces|||",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/shop",
                "get |namespaces||shop|shop",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/shop/status",
                "update |namespaces|status|shop|shop",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/shop/pods",
                "list |pods||shop|",
            ),
            (
                Method::HEAD,
                "/api/v1/namespaces/shop/pods/a/log",
                "get |pods|log|shop|a",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/shop/deployments/",
                "deletecollection apps|deployments||shop|",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/shop/deployments/a",
                "delete apps|deployments||shop|a",
            ),
            (
                Method::PATCH,
                "/api/v1/nodes/n/status",
                "patch |nodes|status||n",
            ),
            (
                Method::POST,
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                "create authentication.k8s.io|selfsubjectreviews|||",
            ),
        ] {
            let found = RequestAttributes::of(&method, &uri.parse().unwrap());
            let object = match &found.object {
                RequestObject::Path(path) => path.clone(),
                RequestObject::Resource(it) => [
                    &it.group,
                    &it.resource,
                    &it.subresource,
                    &it.namespace,
                    &it.name,
                ]
                .map(String::as_str)
                .join("|"),
            };
            assert_eq!(format!("{} {object}", found.verb), expected, "{uri}");
        }
    }
}
