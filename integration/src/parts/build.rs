//! The cache of built binaries, keyed by the files that pin them, and the build that fills it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use tokio::process::Command;
use tokio::time::timeout;

use super::node::Patch;
use super::{Part, PartError, module};

/// Lets Go download the newer release of itself that a go.mod asks for, and use its own otherwise.
pub(super) const TOOLCHAIN: &str = "auto";

/// The linker flags of a part that is built without versions. They keep the build information, which
/// lists the libraries in the binary.
pub(super) const STRIPPED: &str = "-s -w";

const PROGRESS: Duration = Duration::from_secs(30);

impl Part {
    /// A file that the program embeds and its module lacks: the web interface, which a build with npm
    /// makes. The build uses a placeholder, so the program lacks this feature.
    fn missing_file(self) -> Option<&'static str> {
        match self {
            Self::FluxOperator => Some("web/dist/index.html"),
            Self::Traefik => Some("webui/static/index.html"),
            _ => None,
        }
    }

    /// A file of the module, a package that it imports, and the package beside go.mod that the build
    /// takes instead.
    fn replaced_import(self) -> Option<[&'static str; 3]> {
        // The clients of 200 DNS providers would be most of the build. Tests request no certificate.
        (self == Self::Traefik).then_some([
            "pkg/provider/acme/provider.go",
            "github.com/go-acme/lego/v5/providers/dns",
            "keyferry.dev/integration/traefik",
        ])
    }
}

/// The path of the binary in the cache: `<cache>/<directory>-<first 16 hex digits of sha256 of
/// go.mod, go.sum, *.go and other *.mod, *.sum, and linker flags that set versions>/<binary>`.
pub(super) fn cached(manifest: &Path, cache: &Path, part: Part) -> Result<PathBuf, PartError> {
    let key = cache_key(manifest, &part.linker_flags())?;
    let folder = cache.join(format!("{}-{key}", part.directory()));
    Ok(folder.join(part.binary()))
}

/// Returns the path of the binary in the cache, and builds it if it does not exist.
pub(super) async fn cached_or_built(
    manifest: &Path,
    cache: &Path,
    part: Part,
) -> Result<PathBuf, PartError> {
    let binary = cached(manifest, cache, part)?;
    if binary.is_file() {
        return Ok(binary);
    }
    let folder = binary.with_file_name("");
    std::fs::create_dir_all(&folder).map_err(|source| cache_error(&folder, source))?;
    let _lock = lock(binary.with_file_name(format!("{}.lock", part.binary()))).await?;
    // Another test process may have built it while this one waited for the lock.
    if binary.is_file() {
        return Ok(binary);
    }
    build(manifest, &binary, part).await?;
    Ok(binary)
}

fn cache_key(manifest: &Path, linker_flags: &str) -> Result<String, PartError> {
    let mut context = digest::Context::new(&digest::SHA256);
    for path in [manifest.join("go.mod"), manifest.join("go.sum")]
        .into_iter()
        .chain(sources(manifest)?)
    {
        let bytes = std::fs::read(&path).map_err(|source| cache_error(&path, source))?;
        context.update(&bytes);
    }
    // Another default version is another binary, although the modules are the same.
    if linker_flags != STRIPPED {
        context.update(linker_flags.as_bytes());
    }
    let sum = context.finish();
    Ok(sum
        .as_ref()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// The program's own Go files by name, and other files that pin its modules. A pinned tool has
/// none.
fn sources(manifest: &Path) -> Result<Vec<PathBuf>, PartError> {
    let entries = std::fs::read_dir(manifest).map_err(|source| cache_error(manifest, source))?;
    let counts = |path: &PathBuf| {
        path.extension()
            .is_some_and(|end| ["go", "mod", "sum"].iter().any(|one| end == *one))
            && path.file_stem().is_some_and(|stem| stem != "go")
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(counts)
        .collect();
    files.sort();
    Ok(files)
}

/// Takes a file lock that lasts until the returned file is dropped. The system releases it when the
/// process dies.
pub(super) async fn lock(path: PathBuf) -> Result<File, PartError> {
    let shown = path.clone();
    tokio::task::spawn_blocking(move || {
        let file = File::create(&path)?;
        file.lock()?;
        Ok(file)
    })
    .await
    .unwrap_or_else(|join| Err(std::io::Error::other(join)))
    .map_err(|source| cache_error(&shown, source))
}

async fn build(manifest: &Path, binary: &Path, part: Part) -> Result<(), PartError> {
    let unavailable = |why: String| PartError::Unavailable {
        part: part.binary(),
        version: part.version(),
        why,
    };
    eprintln!(
        "building {} {} once, about {} s on two cores",
        part.binary(),
        part.version(),
        part.expected_seconds()
    );
    let started = Instant::now();
    let unfinished = binary.with_extension(format!("{}.unfinished", std::process::id()));
    let changed = match part.patch() {
        Some(patch) => Some(patched_modules(manifest, &folder_of(binary), part, patch).await?),
        None => completed(manifest, binary, part).await?,
    };
    let modfile = part.modfile().map(PathBuf::from).or(changed);
    // At low priority, because suites that have their parts run meanwhile.
    let building = Command::new("nice")
        .args(["-n", "19", "go", "build", "-trimpath"])
        .current_dir(manifest)
        .env("CGO_ENABLED", if part.cgo() { "1" } else { "0" })
        .env("GOTOOLCHAIN", TOOLCHAIN)
        .args(modfile.map(|file| format!("-modfile={}", file.display())))
        .args(["-ldflags", &part.linker_flags(), "-o"])
        .arg(&unfinished)
        .arg(part.package())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = with_progress(building, part, started)
        .await
        .map_err(|error| unavailable(format!("not in the cache, and go did not start: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        return Err(unavailable(format!(
            "not in the cache, and go build failed: {last}"
        )));
    }
    std::fs::rename(&unfinished, binary).map_err(|source| cache_error(binary, source))?;
    eprintln!(
        "built {} {} in {} s",
        part.binary(),
        part.version(),
        started.elapsed().as_secs()
    );
    Ok(())
}

/// Copies the module, with a file of ours in the place of one of its own, and returns a go.mod that
/// names the copy. Go has compared the module with go.sum before.
async fn patched_modules(
    manifest: &Path,
    folder: &Path,
    part: Part,
    patch: Patch,
) -> Result<PathBuf, PartError> {
    let module = module::folder(manifest, part, part.module()).await?;
    let copy = folder.join(format!("{}-source", part.binary()));
    let _ = std::fs::remove_dir_all(&copy);
    // The files of Go's module cache are read-only.
    let copied = Command::new("cp")
        .args(["-r", "--no-preserve=mode"])
        .args([&module, &copy])
        .output()
        .await;
    let failed = |source| cache_error(&copy, source);
    if !copied.map_err(failed)?.status.success() {
        return Err(failed(std::io::Error::other("the module cannot be copied")));
    }
    let modfile = folder.join(format!("{}.mod", part.binary()));
    let write = || {
        std::fs::copy(manifest.join(patch.by), copy.join(patch.replaced))?;
        let text = std::fs::read_to_string(manifest.join("go.mod"))?;
        let replace = format!("{text}\nreplace {} => {}\n", part.module(), copy.display());
        std::fs::write(&modfile, replace)?;
        std::fs::copy(manifest.join("go.sum"), modfile.with_extension("sum"))
    };
    write().map_err(failed)?;
    Ok(modfile)
}

fn folder_of(binary: &Path) -> PathBuf {
    binary.parent().unwrap_or(binary).to_owned()
}

/// Copies the part's module, adds the file that it lacks, replaces an import, and returns a go.mod
/// that takes the copy. `go build -overlay` would add the file too, but not below Go's module cache.
async fn completed(
    manifest: &Path,
    binary: &Path,
    part: Part,
) -> Result<Option<PathBuf>, PartError> {
    let Some(missing) = part.missing_file() else {
        return Ok(None);
    };
    let module = module::folder(manifest, part, part.module()).await?;
    let copy = binary.with_file_name("module");
    let modfile = binary.with_file_name("completed.mod");
    let failed = |source| cache_error(&copy, source);
    if copy.exists() {
        std::fs::remove_dir_all(&copy).map_err(failed)?;
    }
    copy_tree(&module, &copy).map_err(failed)?;
    let file = copy.join(missing);
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(&file, "placeholder").map_err(failed)?;
    if let Some([file, import, replacement]) = part.replaced_import() {
        let file = copy.join(file);
        let text = std::fs::read_to_string(&file).map_err(failed)?;
        std::fs::write(&file, text.replace(import, replacement)).map_err(failed)?;
    }
    let pinned = std::fs::read_to_string(manifest.join("go.mod")).map_err(failed)?;
    let replaced = format!(
        "{pinned}\nreplace {} => {}\n",
        part.module(),
        copy.display()
    );
    std::fs::write(&modfile, replaced).map_err(failed)?;
    std::fs::copy(manifest.join("go.sum"), modfile.with_extension("sum")).map_err(failed)?;
    Ok(Some(modfile))
}

/// Copies folders and files. Those of Go's module cache are read-only; the copies are not.
fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_tree(&path, &copy)?;
        } else {
            std::fs::write(copy, std::fs::read(&path)?)?;
        }
    }
    Ok(())
}

/// Prints the time that a build has taken, until it ends.
async fn with_progress<T>(building: impl Future<Output = T>, part: Part, started: Instant) -> T {
    let mut building = pin!(building);
    loop {
        match timeout(PROGRESS, &mut building).await {
            Ok(built) => return built,
            Err(_) => eprintln!(
                "building {}: {} s of about {} s",
                part.binary(),
                started.elapsed().as_secs(),
                part.expected_seconds()
            ),
        }
    }
}

pub(super) fn cache_error(path: &Path, source: std::io::Error) -> PartError {
    PartError::Cache {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_key_follows_every_file_and_the_versions() {
        let folder = tempfile::tempdir().unwrap();
        let key = |flags| cache_key(folder.path(), flags).unwrap();
        std::fs::write(folder.path().join("go.mod"), "ab").unwrap();
        std::fs::write(folder.path().join("go.sum"), "c").unwrap();
        // The first 16 hex digits of sha256("abc"), FIPS 180-4.
        assert_eq!(key(STRIPPED), "ba7816bf8f01cfea");
        std::fs::write(folder.path().join("go.sum"), "d").unwrap();
        assert_ne!(key(STRIPPED), "ba7816bf8f01cfea");
        std::fs::write(folder.path().join("go.sum"), "").unwrap();
        std::fs::write(folder.path().join("main.go"), "c").unwrap();
        std::fs::write(folder.path().join("notes.md"), "d").unwrap();
        assert_eq!(key(STRIPPED), "ba7816bf8f01cfea");
        // Helm's flags set the Kubernetes version for which it renders by default.
        assert_ne!(key("-s -w -X k8sVersionMinor=37"), key(STRIPPED));
        assert_ne!(
            key("-s -w -X k8sVersionMinor=37"),
            key("-s -w -X k8sVersionMinor=36")
        );
    }

    #[tokio::test]
    async fn a_cached_binary_is_found_without_go() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("manifest");
        std::fs::create_dir(&manifest).unwrap();
        std::fs::write(manifest.join("go.mod"), "ab").unwrap();
        std::fs::write(manifest.join("go.sum"), "c").unwrap();
        let cached = folder.path().join("etcd-ba7816bf8f01cfea");
        std::fs::create_dir(&cached).unwrap();
        std::fs::write(cached.join("etcd"), "").unwrap();
        let found = cached_or_built(&manifest, folder.path(), Part::Etcd)
            .await
            .unwrap();
        assert_eq!(found, cached.join("etcd"));
    }
}
