//! The content of the hub: namespaces, ServiceAccounts and Secrets, changed from outside.

use std::collections::BTreeMap;

use super::EmbeddedHub;
use super::object::{Object, Resource};
use crate::EmbeddedError;

impl EmbeddedHub {
    /// Adds a namespace, or replaces the labels of one that exists.
    pub fn add_namespace(&self, name: &str, labels: &[(&str, &str)]) {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        self.policy.objects.put_namespace(name, labels);
    }

    /// Removes a namespace and everything in it.
    pub fn delete_namespace(&self, name: &str) {
        self.policy.objects.delete_namespace(name);
    }

    /// Adds a ServiceAccount (and its namespace, if missing) and returns its UID; one that exists
    /// is left alone and keeps its UID.
    pub fn add_service_account(&self, namespace: &str, name: &str) -> String {
        self.policy
            .objects
            .put(Resource::ServiceAccounts, namespace, name, BTreeMap::new())
    }

    /// Removes a ServiceAccount; its tokens stop passing TokenReview at once. False if absent.
    pub fn delete_service_account(&self, namespace: &str, name: &str) -> bool {
        self.policy
            .objects
            .delete(Resource::ServiceAccounts, namespace, name)
    }

    /// Deletes a ServiceAccount and adds one of the same name; returns the new UID.
    pub fn recreate_service_account(&self, namespace: &str, name: &str) -> String {
        self.delete_service_account(namespace, name);
        self.add_service_account(namespace, name)
    }

    /// Adds a Secret (and its namespace, if missing), or replaces its data.
    pub fn add_secret(&self, namespace: &str, name: &str, data: &[(&str, &[u8])]) {
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.to_vec()))
            .collect();
        self.policy
            .objects
            .put(Resource::Secrets, namespace, name, data);
    }

    /// Forgets the history of changes, so that a watch from an older resourceVersion gets
    /// `410 Gone` and has to list again.
    pub fn compact(&self) {
        self.policy.objects.compact();
    }

    pub(super) fn service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Object, EmbeddedError> {
        self.policy
            .objects
            .get(Resource::ServiceAccounts, namespace, name)
            .ok_or_else(|| EmbeddedError::NoServiceAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
    }
}
