//! Addresses of HTTP targets.

use reqwest::Url;
use url::Host;

/// Parses the address of a target.
///
/// # Errors
/// In words, when it is no HTTP address or holds a password.
pub fn check(text: &str) -> Result<Url, String> {
    let url: Url = text
        .parse()
        .map_err(|error| format!("this is no address ({error}); one is \"https://host/path\""))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the address must start with http:// or https://, not {}://",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the address holds a user or a password, which are not sent".to_owned());
    }
    Ok(url)
}

/// Whether the address stays on this machine.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        let is = |text: &str| is_loopback(&check(text).unwrap());
        assert!(is("http://127.0.0.1:1/x") && is("http://127.9.9.9") && is("http://[::1]:8080"));
        assert!(is("http://localhost:8080/hook") && is("http://a.localhost/"));
        assert!(!is("http://example.com") && !is("http://10.0.0.1") && !is("http://localhost.x"));
        assert!(!is("http://127.0.0.1.example.com/"));
    }

    #[test]
    fn odd_addresses_are_refused() {
        for text in [
            "",
            "hook",
            "ftp://a/",
            "file:///etc/passwd",
            "http://u:p@a/",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
