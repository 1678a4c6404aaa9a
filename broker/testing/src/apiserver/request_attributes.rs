//! What a request does to what, in the terms of an authorizer.

use axum::http::{Method, Uri};
use keyferry_kube_rbac::{Attributes, ResourceRequest};

/// Reads the attributes of an HTTP request, as `RequestInfoFactory` of kube-apiserver does. The old
/// paths with `watch/` or `proxy/` before the resource are not supported.
pub(crate) fn read_attributes(method: &Method, uri: &Uri) -> Attributes {
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
        return Attributes::path(&method.as_str().to_lowercase(), path);
    };
    let has_name = !resource.name.is_empty();
    let verb = match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD if has_name => "get",
        Method::GET | Method::HEAD if watches(uri) => "watch",
        Method::GET | Method::HEAD => "list",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if has_name => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    };
    Attributes::resource(verb, resource)
}

/// Reads the parts of a path behind the version.
fn resource<'a>(group: &str, parts: impl Iterator<Item = &'a str>) -> Option<ResourceRequest> {
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
    (!part(0).is_empty()).then(|| ResourceRequest {
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
    use keyferry_kube_rbac::RequestTarget;

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
            let found = read_attributes(&method, &uri.parse().unwrap());
            let object = match &found.target {
                RequestTarget::Path(path) => path.clone(),
                RequestTarget::Resource(it) => [
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
