//! Where a broker is, with credentials that are never shown.

use std::fmt;

use url::Url;

/// Why an address cannot be used. Never quotes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is no URL.
    #[error("is no address: {0}")]
    Url(#[from] url::ParseError),
    /// Another scheme.
    #[error("must begin with {0}")]
    Scheme(&'static str),
    /// No host.
    #[error("names no host")]
    Host,
}

/// A broker's address, credentials among it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Url);

impl Address {
    /// Reads an address whose scheme is the plain one or the one with TLS.
    ///
    /// # Errors
    /// [`AddressError`].
    pub(crate) fn parse(
        text: &str,
        [plain, tls]: [&str; 2],
        expected: &'static str,
    ) -> Result<Self, AddressError> {
        let url = Url::parse(text)?;
        if url.scheme() != plain && url.scheme() != tls {
            return Err(AddressError::Scheme(expected));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(AddressError::Host);
        }
        Ok(Self(url))
    }

    /// The address with its credentials, for the client only.
    pub(crate) const fn url(&self) -> &Url {
        &self.0
    }
}

/// Scheme, host and port.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.0.host_str().unwrap_or_default();
        write!(f, "{}://{host}", self.0.scheme())?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, AddressError> {
        Address::parse(text, ["nats", "tls"], "nats:// or tls://")
    }

    #[test]
    fn credentials_and_paths_are_never_shown() {
        let address = parse("nats://shop:hunter2@broker.test:4222/vhost?token=s3cret").unwrap();
        assert_eq!(address.to_string(), "nats://broker.test:4222");
        assert_eq!(format!("{address:?}"), "Address(nats://broker.test:4222)");
        assert_eq!(parse("tls://b").unwrap().to_string(), "tls://b");
    }

    #[test]
    fn what_is_no_address_is_refused_without_quoting_it() {
        for bad in [
            "",
            "broker:hunter2",
            "http://hunter2",
            "nats://",
            "nats:hunter2",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
