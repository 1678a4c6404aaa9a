//! Keyferry's image as an OCI archive: one static binary, CA certificates and a user. It is written
//! without a container daemon and without a base image. The same inputs give the same bytes.
//!
//! ```no_run
//! use keyferry_image::{Image, Labels, keyferry};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let binary = std::fs::read("target/release/keyferry")?;
//! let authorities = std::fs::read("/etc/ssl/certs/ca-certificates.crt")?;
//! let image: Image = keyferry(binary, authorities, &Labels::default())?;
//! let digest = image.write("keyferry:0.1.0", std::fs::File::create("keyferry.tar")?)?;
//! # Ok(())
//! # }
//! ```

mod archive;
mod contents;
mod executable;

pub use archive::{Digest, Image, ImageConfig, ImageFile, WriteError};
pub use contents::{Labels, keyferry};
pub use executable::{Architecture, ExecutableError};
