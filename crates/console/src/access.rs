//! Who may do what: bearer tokens with scopes.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Shortest token that is taken, in bytes. Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Submit messages.
    Publish,
    /// Ask for states.
    Read,
    /// Act on cases.
    Operate,
    /// See payloads, results and error details.
    Reveal,
}

impl Scope {
    /// The name in configuration and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Reveal => "reveal",
        }
    }
}

/// A caller that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The token's name, or `local`.
    pub name: String,
    scopes: Vec<Scope>,
}

impl Caller {
    /// Whether the caller has a scope.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }
}

/// A token that cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Its file cannot be read.
    #[error("could not read the token {name:?} from its file")]
    Unreadable {
        /// The token's name.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is too short, or has bytes that no bearer token has.
    #[error(
        "the token {name:?} is no bearer token: at least {TOKEN_BYTES_MIN} letters, digits and \
         - . _ ~ + / = are needed"
    )]
    Unusable {
        /// The token's name.
        name: String,
    },
    /// Two tokens have one name, or one secret.
    #[error("the token {name:?} is there twice, by name or by secret")]
    Repeated {
        /// The token's name.
        name: String,
    },
}

#[derive(Clone)]
struct Token {
    name: String,
    scopes: Vec<Scope>,
    hash: [u8; 32],
}

/// The tokens. With none, whoever reaches the listener is the caller `local`, who may publish and
/// read, and not reveal.
#[derive(Clone, Default)]
pub struct Access {
    tokens: Vec<Token>,
}

/// Shows names and scopes only.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.tokens.iter().map(|token| (&token.name, &token.scopes));
        f.debug_map().entries(tokens).finish()
    }
}

impl Access {
    /// Adds a token. Only its hash is kept.
    ///
    /// # Errors
    /// When it is too short, has bytes that no bearer token has, or repeats another.
    pub fn with_token(
        mut self,
        name: impl Into<String>,
        secret: &str,
        scopes: impl IntoIterator<Item = Scope>,
    ) -> Result<Self, AccessError> {
        let name = name.into();
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
        if secret.len() < TOKEN_BYTES_MIN || !secret.bytes().all(is_good) {
            return Err(AccessError::Unusable { name });
        }
        let hash = hash_of(secret);
        if self.tokens.iter().any(|t| t.name == name || t.hash == hash) {
            return Err(AccessError::Repeated { name });
        }
        let scopes = scopes.into_iter().collect();
        self.tokens.push(Token { name, scopes, hash });
        Ok(self)
    }

    /// Adds the token that a file holds, without the white space around it.
    ///
    /// # Errors
    /// As for [`with_token`](Self::with_token), and when the file cannot be read.
    pub fn with_token_file(
        self,
        name: impl Into<String>,
        path: &Path,
        scopes: impl IntoIterator<Item = Scope>,
    ) -> Result<Self, AccessError> {
        let name = name.into();
        match std::fs::read_to_string(path) {
            Ok(secret) => self.with_token(name, secret.trim(), scopes),
            Err(source) => Err(AccessError::Unreadable { name, source }),
        }
    }

    /// Whether there is no token at all.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The caller with this `Authorization` header; `None` when nobody is.
    #[must_use]
    pub fn caller(&self, authorization: Option<&str>) -> Option<Caller> {
        if self.is_open() {
            return Some(Caller {
                name: "local".to_owned(),
                scopes: vec![Scope::Publish, Scope::Read],
            });
        }
        let (scheme, secret) = authorization?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let hash = hash_of(secret.trim());
        // All are compared, so that the time says nothing about which one fits.
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.hash.ct_eq(&hash)) {
                found = Some(token);
            }
        }
        found.map(|token| Caller {
            name: token.name.clone(),
            scopes: token.scopes.clone(),
        })
    }
}

fn hash_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// A listener that would be open to others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} is open to others, and no token is configured (OW2014): configure one, or listen on \
     loopback"
)]
pub struct ExposureError {
    /// The address.
    pub address: SocketAddr,
}

/// Refuses to listen beyond loopback without a token. Call it with the address that the listener
/// really has.
///
/// # Errors
/// When there is no token and the address is not on loopback.
pub fn check_exposure(address: SocketAddr, access: &Access) -> Result<(), ExposureError> {
    if access.is_open() && !address.ip().to_canonical().is_loopback() {
        return Err(ExposureError { address });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn access() -> Access {
        let access = Access::default().with_token("shop", SECRET, [Scope::Publish]);
        access.unwrap()
    }

    #[test]
    fn without_a_token_the_caller_is_local_and_reveals_nothing() {
        let caller = Access::default().caller(None).unwrap();
        assert_eq!(caller.name, "local");
        let scopes = [Scope::Publish, Scope::Read, Scope::Operate, Scope::Reveal];
        let may = scopes.map(|scope| caller.may(scope));
        assert_eq!(may, [true, true, false, false]);
    }

    #[test]
    fn with_a_token_only_it_opens() {
        let access = access();
        let header = format!("bearer {SECRET}");
        let caller = access.caller(Some(&header)).unwrap();
        assert_eq!(
            (caller.name.as_str(), caller.may(Scope::Read)),
            ("shop", false)
        );
        for bad in [
            "Bearer 0123456789abcdeF",
            "Basic 0123456789abcdef",
            SECRET,
            "Bearer",
            "",
        ] {
            assert_eq!(access.caller(Some(bad)), None, "{bad}");
        }
        assert_eq!(access.caller(None), None);
    }

    #[test]
    fn weak_and_repeated_tokens_are_refused() {
        let weak = Access::default().with_token("a", "short", []);
        assert!(matches!(weak, Err(AccessError::Unusable { .. })));
        let blank = Access::default().with_token("a", "0123456789 abcdef", []);
        assert!(matches!(blank, Err(AccessError::Unusable { .. })));
        let same_secret = access().with_token("other", SECRET, []);
        assert!(matches!(same_secret, Err(AccessError::Repeated { .. })));
        let same_name = access().with_token("shop", "fedcba9876543210", []);
        assert!(matches!(same_name, Err(AccessError::Repeated { .. })));
        let missing = access().with_token_file("b", Path::new("/nonexistent/token"), []);
        assert!(matches!(missing, Err(AccessError::Unreadable { .. })));
    }

    #[test]
    fn debug_withholds_secrets() {
        assert_eq!(format!("{:?}", access()), r#"{"shop": [Publish]}"#);
    }

    #[test]
    fn only_loopback_is_served_without_a_token() {
        let check =
            |address: &str, access: &Access| check_exposure(address.parse().unwrap(), access);
        let open = Access::default();
        for loopback in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(check(loopback, &open), Ok(()), "{loopback}");
        }
        for other in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
            assert!(check(other, &open).is_err(), "{other}");
            assert_eq!(check(other, &access()), Ok(()), "{other}");
        }
    }
}
