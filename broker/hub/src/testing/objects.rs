//! A fake store of a hub's objects: UIDs, resourceVersions, managedFields and preconditions as in
//! the API, and calls that fail when a test wants it.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use jiff::Timestamp;
use keyferry_api::config::ReducedObject;
use keyferry_core::client_certificate::CountedRequest;
use keyferry_core::delivery::{FIELD_MANAGER, FluxObject, ObjectBody, ReadObject};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ports::{HubError, HubObjects};

/// How calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// This call, counted from 0, and all after it do not reach the hub.
    From(usize),
    /// This call, counted from 0, succeeds but its answer is lost; all after it do not reach the
    /// hub.
    LostFrom(usize),
    /// Only this call is answered 409.
    ConflictAt(usize),
    /// Calls with this verb whose path contains this text are answered 403.
    Forbidden(&'static str, &'static str),
    /// Calls with this verb whose path contains this text are answered 404.
    Absent(&'static str, &'static str),
    /// Calls with this verb whose path contains this text do not reach the hub.
    Unreachable(&'static str, &'static str),
    /// Calls with this verb whose path contains this text have an answer that cannot be read.
    Unreadable(&'static str, &'static str),
    /// Calls with this verb whose path contains this text have an answer that is too large.
    TooLarge(&'static str, &'static str),
}

/// A test's action before a call.
type Hook = Box<dyn Fn(&str) + Send>;

#[derive(Default)]
struct Shelf {
    objects: BTreeMap<String, Value>,
    last_version: u64,
    calls: Vec<String>,
    failing: Option<Failing>,
    hook: Option<Hook>,
    every_version: Vec<Value>,
}

/// A hub's objects in memory.
#[derive(Default)]
pub struct FakeObjects(Mutex<Shelf>);

impl FakeObjects {
    /// Makes calls fail like this from now on, and restarts their count.
    pub fn fail(&self, failing: Option<Failing>) {
        let mut shelf = self.shelf();
        shelf.calls.clear();
        shelf.failing = failing;
    }

    /// Calls this with `<verb> <path>` before every call.
    pub fn on_call(&self, hook: Option<Hook>) {
        self.shelf().hook = hook;
    }

    /// The calls since the last [`FakeObjects::fail`], as `<verb> <path>`.
    pub fn calls(&self) -> Vec<String> {
        self.shelf().calls.clone()
    }

    /// Writes an object as another client would.
    pub fn put_foreign(&self, path: &str, mut object: Value) {
        let mut shelf = self.shelf();
        shelf.stamp(&mut object, None, None);
        shelf.objects.insert(path.to_owned(), object);
    }

    /// Deletes an object as another client would.
    pub fn delete_foreign(&self, path: &str) {
        self.shelf().objects.remove(path);
    }

    /// Changes an object as its owner would.
    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut shelf = self.shelf();
        let Some(mut object) = shelf.objects.remove(path) else {
            return;
        };
        change(&mut object);
        shelf.renew(&mut object);
        shelf.objects.insert(path.to_owned(), object);
    }

    /// Returns the object at a path.
    pub fn object(&self, path: &str) -> Option<Value> {
        self.shelf().objects.get(path).cloned()
    }

    /// Returns every object whose path contains the text.
    pub fn all(&self, contains: &str) -> Vec<Value> {
        self.shelf()
            .objects
            .iter()
            .filter(|(path, _)| path.contains(contains))
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Returns every version of every delivered object that ever existed.
    pub fn every_version(&self) -> Vec<Value> {
        self.shelf().every_version.clone()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock()
    }

    /// Makes one call: it fails, or changes the store, or both.
    async fn call<T>(
        &self,
        verb: &str,
        path: &str,
        work: impl FnOnce(&mut Shelf) -> Result<T, HubError>,
    ) -> Result<T, HubError> {
        // Lets other tasks run between any two calls.
        tokio::task::yield_now().await;
        let call = format!("{verb} {path}");
        let hook = self.shelf().hook.take();
        if let Some(hook) = hook {
            hook(&call);
            self.shelf().hook = Some(hook);
        }
        let mut shelf = self.shelf();
        let index = shelf.calls.len();
        shelf.calls.push(call);
        let away = || HubError::Unreachable("away".to_owned());
        match shelf.failing {
            Some(Failing::From(from) | Failing::LostFrom(from)) if index > from => Err(away()),
            Some(Failing::From(from)) if index == from => Err(away()),
            Some(Failing::LostFrom(from)) if index == from => {
                work(&mut shelf).and_then(|_| Err(away()))
            }
            Some(Failing::ConflictAt(at)) if index == at && verb != "get" => {
                Err(HubError::Conflict("another was first".to_owned()))
            }
            Some(Failing::Forbidden(one, text)) if one == verb && path.contains(text) => {
                Err(HubError::Forbidden("no right".into()))
            }
            Some(Failing::Absent(one, text)) if one == verb && path.contains(text) => {
                Err(HubError::NotFound("no such path".to_owned()))
            }
            Some(Failing::Unreachable(one, text)) if one == verb && path.contains(text) => {
                Err(away())
            }
            Some(Failing::TooLarge(one, text)) if one == verb && path.contains(text) => {
                Err(HubError::TooLarge)
            }
            Some(Failing::Unreadable(one, text)) if one == verb && path.contains(text) => {
                Err(HubError::Unreadable("answer"))
            }
            _ => work(&mut shelf),
        }
    }
}

impl Shelf {
    /// The objects of a collection, whatever its query selects.
    fn items<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Value> {
        let collection = path.split('?').next().unwrap_or_default();
        let objects = self.objects.iter().filter(move |(path, _)| {
            let name = path.strip_prefix(collection);
            name.is_some_and(|name| name.starts_with('/'))
        });
        objects.map(|(_, object)| object)
    }

    fn next(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    fn renew(&mut self, object: &mut Value) {
        object["metadata"]["resourceVersion"] = json!(self.next().to_string());
    }

    /// Adds the metadata that the API sets on a written object.
    fn stamp(&mut self, object: &mut Value, uid: Option<&Value>, manager: Option<&str>) {
        let uid = uid
            .cloned()
            .unwrap_or_else(|| json!(format!("uid-{}", self.next())));
        object["metadata"]["uid"] = uid;
        object["metadata"]["managedFields"] = match manager {
            Some(manager) => json!([{ "manager": manager, "operation": "Update" }]),
            None => json!([{ "manager": "somebody", "operation": "Update" }]),
        };
        self.renew(object);
    }

    fn keep(&mut self, path: String, object: Value) {
        self.every_version.push(object.clone());
        self.objects.insert(path, object);
    }

    /// Returns the object at a path, if its UID and resourceVersion are those that the write names.
    fn meet(&self, path: &str, names: &Value) -> Result<Value, HubError> {
        let object = self
            .objects
            .get(path)
            .cloned()
            .ok_or_else(|| HubError::NotFound("none".to_owned()))?;
        for field in ["uid", "resourceVersion"] {
            if let Some(named) = names
                .get(field)
                .filter(|named| *named != &object["metadata"][field])
            {
                return Err(HubError::Conflict(format!("{field} is not {named}")));
            }
        }
        Ok(object)
    }

    fn create(&mut self, collection: &str, mut object: Value) -> Result<String, HubError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{collection}/{name}");
        if self.objects.contains_key(&path) {
            return Err(HubError::Conflict("there is one".to_owned()));
        }
        self.stamp(&mut object, None, Some(FIELD_MANAGER));
        let version = version(&object);
        self.keep(path, object);
        Ok(version)
    }

    fn replace(&mut self, path: &str, mut object: Value) -> Result<String, HubError> {
        let held = self.meet(path, &object["metadata"])?;
        self.stamp(
            &mut object,
            Some(&held["metadata"]["uid"]),
            Some(FIELD_MANAGER),
        );
        let version = version(&object);
        self.keep(path.to_owned(), object);
        Ok(version)
    }

    fn patch(&mut self, path: &str, change: &Value) -> Result<(), HubError> {
        let object_path = path.trim_end_matches("/status");
        let mut object = self.meet(object_path, &change["metadata"])?;
        if object_path == path {
            merge(&mut object, change);
        } else {
            merge(&mut object["status"], &change["status"]);
        }
        self.renew(&mut object);
        let going = object["metadata"]["deletionTimestamp"].is_string();
        let held = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|finalizers| !finalizers.is_empty());
        if going && !held {
            self.objects.remove(object_path);
        } else {
            self.objects.insert(object_path.to_owned(), object);
        }
        Ok(())
    }
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Applies a JSON merge patch (RFC 7396).
fn merge(into: &mut Value, change: &Value) {
    let Some(members) = change.as_object() else {
        *into = change.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (field, value) in members {
        if value.is_null() {
            drop(into.as_object_mut().and_then(|into| into.remove(field)));
        } else {
            merge(&mut into[field], value);
        }
    }
}

impl HubObjects for FakeObjects {
    fn get<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadObject>, HubError>> {
        Box::pin(self.call("get", path, move |shelf| {
            Ok(shelf.objects.get(path).cloned().map(ReadObject::new))
        }))
    }

    fn is_used_by_flux<'a>(
        &'a self,
        path: &'a str,
        uses: &'a (dyn Fn(&FluxObject) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Result<bool, HubError>> {
        // A test puts a whole list at the path of a collection.
        Box::pin(self.call("list", path, move |shelf| {
            let list = shelf.objects.get(path);
            let list = list.ok_or_else(|| HubError::NotFound("no such kind".to_owned()))?;
            let items = list["items"].as_array();
            let items = items.ok_or(HubError::Unreadable("list"))?;
            let is_used = |item| FluxObject::deserialize(item).is_ok_and(|object| uses(&object));
            let is_cut_off = !list["metadata"]["continue"].is_null();
            Ok(is_cut_off || items.iter().any(is_used))
        }))
    }

    fn certificate_request_times<'a>(
        &'a self,
        path: &'a str,
        most: usize,
        counted_time: &'a (dyn Fn(&CountedRequest) -> Option<Timestamp> + Send + Sync),
    ) -> BoxFuture<'a, Result<Vec<Timestamp>, HubError>> {
        Box::pin(self.call("list", path, move |shelf| {
            let requests = shelf.items(path);
            Ok(requests
                .filter_map(|object| CountedRequest::deserialize(object).ok())
                .filter_map(|request| counted_time(&request))
                .take(most)
                .collect())
        }))
    }

    fn create<'a>(
        &'a self,
        collection: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>> {
        Box::pin(self.call("create", collection, move |shelf| {
            shelf.create(collection, json!(object))
        }))
    }

    fn replace<'a>(
        &'a self,
        path: &'a str,
        object: &'a ObjectBody,
    ) -> BoxFuture<'a, Result<String, HubError>> {
        Box::pin(self.call("replace", path, move |shelf| {
            shelf.replace(path, json!(object))
        }))
    }

    fn delete<'a>(
        &'a self,
        path: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(self.call("delete", path, move |shelf| {
            match shelf.meet(path, &json!({ "uid": uid, "resourceVersion": version })) {
                Ok(_) => {
                    shelf.objects.remove(path);
                    Ok(())
                }
                Err(HubError::NotFound(_)) => Ok(()),
                Err(error) => Err(error),
            }
        }))
    }

    fn create_plain<'a>(
        &'a self,
        collection: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(self.call("post", collection, move |shelf| {
            shelf.create(collection, object.clone()).map(drop)
        }))
    }

    fn replace_plain<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(self.call("put", path, move |shelf| {
            shelf.replace(path, object.clone()).map(drop)
        }))
    }

    fn patch<'a>(
        &'a self,
        path: &'a str,
        change: &'a Value,
    ) -> BoxFuture<'a, Result<ReducedObject, HubError>> {
        // Only the watch reports the new object, as when an answer is lost.
        Box::pin(self.call("patch", path, move |shelf| {
            shelf
                .patch(path, change)
                .map(|()| ReducedObject::of(&Value::Null))
        }))
    }

    fn apply_status<'a>(
        &'a self,
        path: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), HubError>> {
        Box::pin(self.call("apply", path, move |shelf| {
            // For a status, the hub checks no other metadata, not even the UID.
            let names = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
            let mut held = shelf.meet(path, &names)?;
            held["status"] = object["status"].clone();
            shelf.renew(&mut held);
            shelf.objects.insert(path.to_owned(), held);
            Ok(())
        }))
    }
}
