//! Signing as in Standard Webhooks, with any number of secrets for rotation. Hidden: public for
//! fuzzing only, but for what `push` names.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const PREFIX: &str = "whsec_";

/// Why secrets cannot be taken. Never quotes one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// There is none.
    #[error("there is no signing secret")]
    Missing,
    /// One is not of the right form.
    #[error(
        "signing secret {number} is not whsec_ followed by the base64 of 24 to 64 bytes, such as \
         `openssl rand -base64 32` makes"
    )]
    Malformed {
        /// Which one, from 1.
        number: usize,
    },
    /// The file cannot be read.
    #[error("the file with the signing secrets cannot be read")]
    Unreadable(#[from] std::io::Error),
    /// The environment variable is not set, or is not text.
    #[error("the environment variable {name} with the signing secrets cannot be read")]
    Unset {
        /// Its name.
        name: String,
    },
}

/// One or more secrets. Each signs every request, so that a receiver may know the old one or the
/// new one while they are exchanged.
#[derive(Clone)]
pub struct SigningSecrets(Vec<Box<[u8]>>);

impl fmt::Debug for SigningSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} signing secrets>", self.0.len())
    }
}

impl SigningSecrets {
    /// Reads secrets of the form `whsec_…`, separated by white space.
    ///
    /// # Errors
    /// When there is none, or one has another form.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let mut secrets = Vec::new();
        for (index, word) in text.split_whitespace().enumerate() {
            let bytes = word
                .strip_prefix(PREFIX)
                .and_then(|b| STANDARD.decode(b).ok());
            let bytes = bytes.filter(|bytes| (24..=64).contains(&bytes.len()));
            let bytes = bytes.ok_or(SecretError::Malformed { number: index + 1 })?;
            secrets.push(bytes.into_boxed_slice());
        }
        if secrets.is_empty() {
            return Err(SecretError::Missing);
        }
        Ok(Self(secrets))
    }

    /// Reads the secrets that a file holds.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), and when the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, SecretError> {
        Self::parse(&std::fs::read_to_string(path)?)
    }

    /// Reads the secrets that an environment variable holds.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), and when the variable is not set.
    pub fn from_env(name: &str) -> Result<Self, SecretError> {
        let text = std::env::var(name).map_err(|_| SecretError::Unset {
            name: name.to_owned(),
        })?;
        Self::parse(&text)
    }

    /// The value of `webhook-signature`.
    #[doc(hidden)]
    #[must_use]
    pub fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let signatures = self.0.iter().map(|secret| {
            let mut mac =
                Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of every length");
            mac.update(id.as_bytes());
            mac.update(format!(".{timestamp_s}.").as_bytes());
            mac.update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

/// A message id as `webhook-id`: without dots, which separate what is signed, and printable. What
/// is plain stays as it is; different ids stay different.
#[must_use]
pub fn webhook_id(id: &str) -> String {
    let mut plain = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_graphic() && !b".%\"".contains(&byte) {
            plain.push(char::from(byte));
        } else {
            plain.push_str(&format!("%{byte:02X}"));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks libraries.
    #[test]
    fn the_reference_vector_is_signed_alike() {
        let secrets = SigningSecrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signature = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn every_secret_signs() {
        let text =
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\nwhsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";
        let secrets = SigningSecrets::parse(text).unwrap();
        let both = secrets.sign("m", 1, b"");
        let (old, new) = both.split_once(' ').unwrap();
        assert!(old.starts_with("v1,") && new.starts_with("v1,") && old != new);
        assert_eq!(format!("{secrets:?}"), "<2 signing secrets>");
    }

    #[test]
    fn other_forms_are_refused_without_quoting_them() {
        assert!(matches!(
            SigningSecrets::parse(" \n"),
            Err(SecretError::Missing)
        ));
        let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for bad in [
            "topsecret",
            "whsec_",
            "whsec_c2hvcnQ=",
            "whsec_*",
            &good[6..],
        ] {
            let error = SigningSecrets::parse(&format!("{good} {bad}")).unwrap_err();
            assert!(
                matches!(error, SecretError::Malformed { number: 2 }),
                "{bad}"
            );
            assert!(bad.len() < 8 || !error.to_string().contains(bad), "{error}");
        }
        assert!(matches!(
            SigningSecrets::from_env("ONCEWARD_NO_SUCH_VARIABLE"),
            Err(SecretError::Unset { .. })
        ));
    }

    #[test]
    fn webhook_ids_have_no_dot_and_stay_apart() {
        assert_eq!(webhook_id("0197-abc_d:e/f"), "0197-abc_d:e/f");
        let ids = ["a.b", "a%2Eb", "a%b", "a b", "é", "a\u{7f}"];
        let mut made: Vec<String> = ids.map(webhook_id).to_vec();
        assert!(
            made.iter()
                .all(|id| id.bytes().all(|b| b.is_ascii_graphic() && b != b'.'))
        );
        made.sort();
        made.dedup();
        assert_eq!(made.len(), ids.len());
    }
}
