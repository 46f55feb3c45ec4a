//! Secrets: named in the configuration, read from a file or the environment when needed.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Code, Error};

/// Where a secret is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// In a file.
    File(PathBuf),
    /// In an environment variable.
    Env(String),
    /// In a file that is made when it is first needed, readable by its owner only. For targets on
    /// loopback only.
    Made(PathBuf),
}

/// A secret. Withheld in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself; not for logs.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Made(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "environment variable {name}"),
        }
    }
}

impl SecretSource {
    /// Reads the secret, without the white space around it; makes the file of
    /// [`Made`](Self::Made) where there is none.
    ///
    /// # Errors
    /// When it is missing, unreadable or empty.
    pub fn read(&self) -> Result<Secret, Error> {
        let text = match self {
            Self::File(path) => std::fs::read_to_string(path).map_err(|e| self.unreadable(e))?,
            Self::Made(path) => match std::fs::read_to_string(path) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    make(path).map_err(|e| self.unreadable(e))?
                }
                read => read.map_err(|e| self.unreadable(e))?,
            },
            Self::Env(name) => std::env::var(name).map_err(|e| self.unreadable(e))?,
        };
        let text = text.trim();
        if text.is_empty() {
            return Err(Error::new(Code::Secret, format!("the {self} is empty")));
        }
        Ok(Secret(text.to_owned()))
    }

    fn unreadable(&self, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::new(Code::Secret, format!("could not read the secret in {self}")).with_source(error)
    }
}

/// Writes 32 random bytes in the form of a Standard Webhooks secret to a new file that only its
/// owner can read.
fn make(path: &Path) -> std::io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    let text = format!("whsec_{}", STANDARD.encode(bytes));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Written aside and linked into place, so that nobody ever reads half a secret.
    let aside = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&aside)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&aside, path);
    std::fs::remove_file(&aside)?;
    match linked {
        Ok(()) => Ok(text),
        // Another process was faster: its secret holds.
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => std::fs::read_to_string(path),
        Err(e) => Err(e),
    }
}

/// The file name of a made secret: the subscription's name with everything that is not plain
/// written as its bytes, so that two names never share a file.
pub(super) fn made_file_name(subscription: &str) -> String {
    let mut name = String::from("push-");
    for byte in subscription.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name.push_str(".secret");
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_secret_stays_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".onceward").join(made_file_name("a/b"));
        let source = SecretSource::Made(path.clone());
        let first = source.read().unwrap();
        assert_eq!(source.read().unwrap(), first);
        assert!(first.reveal().starts_with("whsec_"));
        let bytes = STANDARD.decode(&first.reveal()["whsec_".len()..]).unwrap();
        assert_eq!(bytes.len(), 32);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(format!("{first:?}"), "<secret>");
    }

    #[test]
    fn missing_and_empty_secrets_say_where_they_were_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let source = SecretSource::File(path.clone());
        let error = source.read().unwrap_err();
        assert_eq!(error.code(), Code::Secret);
        assert!(error.to_string().contains("token"), "{error}");
        std::fs::write(&path, "  \n").unwrap();
        assert!(source.read().unwrap_err().to_string().contains("is empty"));
        assert!(
            SecretSource::Env("ONCEWARD_NO_SUCH_VARIABLE".into())
                .read()
                .is_err()
        );
    }

    #[test]
    fn names_never_share_a_file() {
        assert_eq!(made_file_name("a/b"), "push-a%2fb.secret");
        assert_ne!(made_file_name("a/b"), made_file_name("a:b"));
    }
}
