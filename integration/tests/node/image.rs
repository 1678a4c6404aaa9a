//! The image itself.

use std::sync::Arc;

use keyferry_integration::built_image::BuiltImage;
use keyferry_integration::runner::{Fixture, NotStarted, TestResult};
use tempfile::TempDir;

use super::setup::IMAGE;

/// The image of the build that is kept between runs.
pub(crate) struct Builds {
    kept: BuiltImage,
    folder: TempDir,
}

impl Fixture for Builds {
    fn log_tails(&self) -> String {
        String::new()
    }
}

impl Builds {
    pub(crate) async fn start() -> Result<Self, NotStarted> {
        let folder = tempfile::tempdir().map_err(NotStarted::failed)?;
        let file = folder.path().join("kept.tar");
        let kept = BuiltImage::build(IMAGE, &file, &BuiltImage::kept_build()).await;
        Ok(Self {
            kept: kept.map_err(NotStarted::failed)?,
            folder,
        })
    }
}

/// Builds everything again, in another folder.
pub(crate) async fn two_builds_have_one_digest(builds: Arc<Builds>) -> TestResult {
    let folder = builds.folder.path();
    let file = folder.join("again.tar");
    let again = BuiltImage::build(IMAGE, &file, &folder.join("target")).await?;
    assert_eq!(again.digest, builds.kept.digest);
    assert_eq!(
        std::fs::read(&again.file)?,
        std::fs::read(&builds.kept.file)?
    );
    Ok(())
}
