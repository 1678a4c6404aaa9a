//! Images of single programs, for Pods of tests.

use std::path::Path;

use keyferry_image::{Architecture, Image, ImageConfig, ImageFile};

use crate::runner::TestError;

/// The image of static programs, each at `/usr/bin/<file name>`. The first is the entry point. Its
/// user is a number, because the kubelet cannot check that a name is not root.
///
/// # Errors
/// A program cannot be read, or the machine's architecture has no images.
pub fn image_of(programs: &[&Path], user: &str) -> Result<Image, TestError> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => Architecture::Amd64,
        "aarch64" => Architecture::Arm64,
        other => return Err(format!("no image for {other}").into()),
    };
    let mut files = Vec::new();
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let content = std::fs::read(program)?;
        files.push(ImageFile::new(&format!("usr/bin/{name}"), 0o755, content));
    }
    let first = files.first().ok_or("an image without a program")?;
    let entrypoint = vec![format!("/{}", first.path)];
    Ok(Image {
        architecture,
        files,
        config: ImageConfig {
            user: user.to_owned(),
            entrypoint,
            ..ImageConfig::default()
        },
    })
}
