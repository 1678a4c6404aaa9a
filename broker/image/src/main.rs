//! Writes Keyferry's image from a static binary, and prints its digest.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use keyferry_image::{Labels, keyferry};

/// Writes Keyferry's image as an OCI archive, without a container daemon. Prints the digest of its manifest.
#[derive(Debug, Parser)]
struct Args {
    /// Keyferry's static binary.
    #[arg(long)]
    binary: PathBuf,
    /// The CA certificates that Keyferry trusts at targets without a CA of their own (PEM).
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    ca_certificates: PathBuf,
    /// The image's name, such as images.example.com/keyferry:0.1.0.
    #[arg(long)]
    name: String,
    /// The label org.opencontainers.image.version.
    #[arg(long, default_value = "dev")]
    version: String,
    /// The label org.opencontainers.image.revision: the commit.
    #[arg(long, default_value = "unknown")]
    revision: String,
    /// The archive.
    #[arg(long)]
    output: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(digest) => {
            println!("{digest}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<String, String> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))
    };
    let authorities = read(&args.ca_certificates).map_err(|error| {
        format!("{error}; fix: install the package ca-certificates, or name a file with --ca-certificates")
    })?;
    let labels = Labels {
        version: args.version.clone(),
        revision: args.revision.clone(),
    };
    let image = keyferry(read(&args.binary)?, authorities, &labels)
        .map_err(|error| format!("{}: {error}", args.binary.display()))?;
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", args.output.display());
    let file = File::create(&args.output).map_err(|error| failed(&error))?;
    let digest = image
        .write(&args.name, BufWriter::new(file))
        .map_err(|error| failed(&error))?;
    Ok(digest.to_string())
}
