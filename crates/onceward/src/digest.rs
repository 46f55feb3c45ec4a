//! The digest that tells one payload from another under one identity.

use onceward_core::{Digest, Row};
use sha2::{Digest as _, Sha256};

/// First 16 bytes of the SHA-256.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    let full = Sha256::digest(bytes);
    let mut digest = [0; 16];
    digest.copy_from_slice(&full[..16]);
    digest
}

/// The digest that the ledger keeps of a message. A corrected one has none: its effect is the
/// original's, whatever the two say.
pub(crate) fn digest_of_row(row: &Row) -> Option<Digest> {
    let is_its_own = row.corrects.is_none();
    is_its_own.then(|| digest_of(row.envelope.payload.as_bytes()))
}

/// Whether two messages of one identity are the same; without a digest nothing speaks against it.
pub(crate) fn is_same(one: Option<Digest>, other: Option<Digest>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}
