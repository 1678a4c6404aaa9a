//! The shipped files, with the addresses of this machine instead of the examples', and shorter
//! intervals.

use keyferry_integration::runner::TestError;

use crate::shipped_fleet::{File, files_below};

/// The replacements in an example's text. Each replaced text must occur.
pub(crate) struct Addresses {
    pub(crate) git: String,
    pub(crate) targets: [String; 2],
}

impl Addresses {
    /// All files of a folder of the example.
    pub(crate) fn files(&self, folder: &str) -> Result<Vec<File>, TestError> {
        let files = files_below(&format!("examples/git-fleet/{folder}"))?;
        Ok(files
            .into_iter()
            .map(|(path, text)| (path, self.replace(&text)))
            .collect())
    }

    fn replace(&self, text: &str) -> String {
        let [a, b] = &self.targets;
        text.replace("https://git.example.com", &self.git)
            .replace("https://target-a.example.com:6443", a)
            .replace("https://target-b.example.com:6443", b)
            .replace("retryInterval: 1m", "retryInterval: 2s")
            .replace("retryInterval: 30s", "retryInterval: 2s")
            .replace("interval: 10m", "interval: 10s")
            .replace("interval: 1m", "interval: 5s")
    }
}

/// The files that `flux bootstrap` writes beside the example's own, as far as a hub without nodes
/// needs them.
pub(crate) fn components() -> String {
    let deployment = |name: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  namespace: flux-system\nspec:\n  replicas: 0\n  \
             selector: {{ matchLabels: {{ app: {name} }} }}\n  template:\n    metadata: {{ labels: {{ app: {name} }} }}\n    \
             spec:\n      containers:\n        - name: manager\n          image: example.com/{name}\n          args:\n            - --log-level=info\n"
        )
    };
    format!(
        "{}---\n{}",
        deployment("source-controller"),
        deployment("kustomize-controller")
    )
}
