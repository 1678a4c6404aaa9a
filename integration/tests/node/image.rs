//! The image itself.

use std::sync::Arc;

use keyferry_integration::built_image::BuiltImage;
use keyferry_integration::runner::TestResult;

use super::setup::{Cluster, IMAGE};

/// Builds everything again, in another folder.
pub(crate) async fn two_builds_have_one_digest(cluster: Arc<Cluster>) -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("again.tar");
    let again = BuiltImage::build(IMAGE, &file, &folder.path().join("target")).await?;
    assert_eq!(again.digest, cluster.image()?.digest);
    assert_eq!(
        std::fs::read(&again.file)?,
        std::fs::read(&cluster.image()?.file)?
    );
    Ok(())
}
