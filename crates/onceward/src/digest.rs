//! The digest that tells one payload from another under one identity.

use onceward_core::Digest;
use sha2::{Digest as _, Sha256};

/// First 16 bytes of the SHA-256.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    let full = Sha256::digest(bytes);
    let mut digest = [0; 16];
    digest.copy_from_slice(&full[..16]);
    digest
}
