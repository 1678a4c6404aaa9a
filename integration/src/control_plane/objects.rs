//! Creates objects that tests need in a control plane, as the admin.

use serde_json::json;

use super::{ControlPlane, ControlPlaneError, Whom};

impl ControlPlane {
    /// Creates the namespace unless it exists.
    pub async fn create_namespace(&self, namespace: &str) -> Result<(), ControlPlaneError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": namespace },
        });
        self.admin
            .apply(&format!("/api/v1/namespaces/{namespace}"), &object)
            .await?;
        Ok(())
    }

    /// Creates the ServiceAccount unless it exists; returns its UID.
    pub async fn create_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<String, ControlPlaneError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": name, "namespace": namespace },
        });
        let path = service_account_path(namespace, name);
        let made = self.admin.apply(&path, &object).await?;
        Ok(made["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Creates the namespace and the ServiceAccount; returns the UID of the ServiceAccount.
    pub async fn create_namespace_with_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<String, ControlPlaneError> {
        self.create_namespace(namespace).await?;
        self.create_service_account(namespace, name).await
    }

    /// Deletes the ServiceAccount and creates it again; returns the new UID.
    pub async fn recreate_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<String, ControlPlaneError> {
        self.admin
            .delete(&service_account_path(namespace, name))
            .await?;
        self.create_service_account(namespace, name).await
    }

    /// Creates the ConfigMap `kube-root-ca.crt`, for a control plane without a
    /// kube-controller-manager to create it.
    pub async fn create_root_ca(&self, namespace: &str) -> Result<(), ControlPlaneError> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "kube-root-ca.crt", "namespace": namespace },
            "data": { "ca.crt": self.ca_pem() },
        });
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
        self.admin.apply(&path, &object).await?;
        Ok(())
    }

    /// Binds a user, by the name that this control plane gives it, to a ClusterRole in the whole
    /// cluster.
    pub async fn bind_user_to_cluster_role(
        &self,
        user: &str,
        cluster_role: &str,
    ) -> Result<(), ControlPlaneError> {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "generateName": "harness-" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": cluster_role,
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "User",
                "name": user,
            }],
        });
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        self.admin
            .create(&format!("{rbac}/clusterrolebindings"), &object)
            .await?;
        let role = self
            .admin
            .get(&format!("{rbac}/clusterroles/{cluster_role}"))
            .await?;
        self.until_it_counts(Whom::User(user), "", &role["rules"][0])
            .await
    }
}

fn service_account_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
}
