//! Runs the blocks of commands in the README and the documents unchanged.

use keyferry_integration::documents::{
    CommandBlock, Run, command_blocks, documents, repository, shown_files,
};
use keyferry_integration::runner::TestResult;
use keyferry_integration::world::on_hub::RECONCILER;

use super::place::{Here, Shell};

/// Commands that run until they are stopped. Each must live for this long, and exit successfully on
/// SIGTERM.
const STAYS_UP: &[&str] = &["keyferry agent", "keyferry export"];

/// Replaces the names of a real fleet in a document by the names used here.
fn use_test_names(text: &str, shell: &Shell) -> String {
    let text = text
        .replace("https://keyferry.keyferry-system.svc", &shell.api_url)
        .replace("https://keyferry.example.com", &shell.discovery_url)
        .replace("/var/run/secrets/keyferry.dev/token", "caller.token")
        .replace("/var/run/keyferry/prod", "$PWD/run-prod")
        .replace("/srv/keys", "$PWD/srv-keys")
        .replace(
            "kubectl --context TARGET",
            "kubectl --kubeconfig target.kubeconfig",
        );
    if STAYS_UP.iter().any(|command| text.starts_with(command)) {
        // 143 would mean that SIGTERM killed the process. Each of them exits with 0 by itself.
        return format!("timeout --preserve-status --signal=TERM 5 {text}");
    }
    text
}

pub(crate) async fn blocks_of_the_documents(place: Here) -> TestResult {
    let shell = place
        .shell("documents", &place.world.broker, "tenant-a")
        .await?
        .with("KEYFERRY_TOKEN_FILE", "caller.token");
    prepare(&shell).await?;
    let mut blocks: Vec<CommandBlock> = Vec::new();
    for document in documents()? {
        for (name, text) in shown_files(&document)? {
            std::fs::write(shell.folder().join(name), text)?;
        }
        blocks.extend(
            command_blocks(&document)?
                .into_iter()
                .filter(|block| matches!(block.run, Some(Run::Offline | Run::Hub))),
        );
    }
    if blocks.len() < 10 {
        return Err(format!("only {} blocks were found", blocks.len()).into());
    }
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for block in &blocks {
        let text = use_test_names(&block.text, &shell);
        let output = shell.run(&text).await?;
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let shown = block.shows.as_deref().unwrap_or_default();
        compared += usize::from(!shown.is_empty());
        if output.status.code() != Some(block.exit) || !said.contains(shown) {
            wrong.push(format!(
                "{}:{} {}, not {}\n{text}\n{said}\nthe document shows:\n{shown}",
                block.document, block.line, output.status, block.exit
            ));
        }
    }
    if compared == 0 {
        return Err("no document shows what its commands print".into());
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n\n").into())
    }
}

/// Creates the files that the documents assume.
async fn prepare(shell: &Shell) -> TestResult {
    let folder = shell.folder();
    std::fs::create_dir_all(folder.join("apps"))?;
    std::os::unix::fs::symlink(repository().join("examples"), folder.join("examples"))?;
    std::fs::write(
        folder.join("apps/kustomization.yaml"),
        "resources: [config.yaml]\n",
    )?;
    let object =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: config, namespace: default }\n";
    std::fs::write(folder.join("apps/config.yaml"), object)?;
    let script = format!(
        "keyferry token tenant-a/prod --server {} --certificate-authority ca.crt --token-file caller.token > token\n\
         keyferry trust prod --config config.yaml --issuer https://hub.keyferry.test --certificate-authority ca.crt > authentication.yaml\n\
         cp config.yaml keyferry.yaml\n\
         kubectl create token {RECONCILER} -n tenant-a --audience keyferry.dev > caller.token\n",
        shell.api_url
    );
    let output = shell.run(&script).await?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    }
}
