//! Reads the header of an ELF file: its machine, and whether it needs a dynamic loader.

/// The machine of an image, as OCI names it (GOARCH).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// `x86_64`.
    Amd64,
    /// `aarch64`.
    Arm64,
}

impl Architecture {
    /// The name in an image's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Why a file cannot be the program of an image.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExecutableError {
    /// It is not a 64-bit little-endian ELF file.
    #[error("the binary is no ELF file for 64 bits; fix: build it for Linux")]
    NotElf,
    /// Its machine is unknown.
    #[error("the binary is for ELF machine {0}; fix: build it for x86_64 or aarch64")]
    Machine(u16),
    /// It needs a dynamic loader, which the image does not have.
    #[error(
        "the binary is not static, it needs {loader}; fix: build it with RUSTFLAGS='-C target-feature=+crt-static'"
    )]
    NotStatic {
        /// The loader that it names.
        loader: String,
    },
}

/// The type of a program header that names a loader (ELF, `PT_INTERP`).
const INTERPRETER: u64 = 3;

/// The machine of a static binary.
///
/// # Errors
/// It is not ELF, for another machine, or not static.
pub(crate) fn static_architecture(binary: &[u8]) -> Result<Architecture, ExecutableError> {
    // ELF64, little-endian: elf(5), Elf64_Ehdr and Elf64_Phdr.
    if binary.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err(ExecutableError::NotElf);
    }
    let field = |offset: u64, bytes: u64| number(binary, offset, bytes);
    let (headers, size, count) = (field(32, 8)?, field(54, 2)?, field(56, 2)?);
    for index in 0..count {
        let header = index
            .checked_mul(size)
            .and_then(|offset| headers.checked_add(offset))
            .ok_or(ExecutableError::NotElf)?;
        if field(header, 4)? == INTERPRETER {
            let (start, length) = (field(header + 8, 8)?, field(header + 32, 8)?);
            return Err(ExecutableError::NotStatic {
                loader: text(binary, start, length),
            });
        }
    }
    match field(18, 2)? {
        62 => Ok(Architecture::Amd64),
        183 => Ok(Architecture::Arm64),
        other => Err(ExecutableError::Machine(
            u16::try_from(other).unwrap_or_default(),
        )),
    }
}

/// A little-endian number of at most eight bytes.
fn number(binary: &[u8], offset: u64, bytes: u64) -> Result<u64, ExecutableError> {
    let start = usize::try_from(offset).map_err(|_| ExecutableError::NotElf)?;
    let end = usize::try_from(offset.saturating_add(bytes)).map_err(|_| ExecutableError::NotElf)?;
    let found = binary.get(start..end).ok_or(ExecutableError::NotElf)?;
    Ok(found
        .iter()
        .rev()
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
}

fn text(binary: &[u8], start: u64, length: u64) -> String {
    let bounds = usize::try_from(start)
        .ok()
        .zip(usize::try_from(length).ok());
    let found = bounds.and_then(|(start, length)| binary.get(start..start.checked_add(length)?));
    String::from_utf8_lossy(found.unwrap_or_default())
        .trim_end_matches('\0')
        .to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An ELF head with one program header.
    pub(crate) fn elf(machine: u16, header: u32, loader: &str) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[54..56].copy_from_slice(&56_u16.to_le_bytes());
        file[56..58].copy_from_slice(&1_u16.to_le_bytes());
        file[64..68].copy_from_slice(&header.to_le_bytes());
        file[72..80].copy_from_slice(&120_u64.to_le_bytes());
        file[96..104].copy_from_slice(&(loader.len() as u64).to_le_bytes());
        file.extend(loader.as_bytes());
        file
    }

    #[test]
    fn a_static_binary_has_a_machine_and_no_loader() {
        assert_eq!(
            static_architecture(&elf(62, 1, "")),
            Ok(Architecture::Amd64)
        );
        assert_eq!(
            static_architecture(&elf(183, 1, "")),
            Ok(Architecture::Arm64)
        );
        assert_eq!(
            static_architecture(&elf(8, 1, "")),
            Err(ExecutableError::Machine(8))
        );
        let dynamic = elf(62, 3, "/lib64/ld-linux-x86-64.so.2\0");
        assert_eq!(
            static_architecture(&dynamic),
            Err(ExecutableError::NotStatic {
                loader: "/lib64/ld-linux-x86-64.so.2".to_owned()
            })
        );
    }

    #[test]
    fn a_file_that_ends_too_early_is_refused() {
        for length in [0, 5, 40, 66] {
            let cut: Vec<u8> = elf(62, 1, "").into_iter().take(length).collect();
            assert_eq!(static_architecture(&cut), Err(ExecutableError::NotElf));
        }
        let mut far = elf(62, 1, "");
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(static_architecture(&far), Err(ExecutableError::NotElf));
    }
}
