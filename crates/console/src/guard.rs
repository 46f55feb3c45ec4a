//! What every request but a probe has to pass.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::access::Caller;
use crate::code::Code;
use crate::problem::Problem;
use crate::{Console, Scope};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Host, origin and token; the caller goes into the request's extensions.
pub(crate) async fn check(
    State(console): State<Arc<Console>>,
    mut request: Request,
    next: Next,
) -> Response {
    match admit(&console, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

fn admit(console: &Console, request: &Request) -> Result<Caller, Problem> {
    let headers = request.headers();
    let host = host(headers, request.uri())
        .ok_or_else(|| Problem::new(Code::HostUnknown, "the request names no host, or several"))?;
    if !console.hosts.contains(name_of(&host)) {
        return Err(Problem::new(
            Code::HostUnknown,
            "add the name under which it is asked to the allowed hosts",
        ));
    }
    check_site(headers, &host)?;
    if console.access.is_open()
        && let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>()
        && !peer.ip().to_canonical().is_loopback()
    {
        return Err(Problem::new(
            Code::Exposed,
            "no token is configured, so only callers on loopback are served",
        ));
    }
    let authorization = headers.get(header::AUTHORIZATION);
    let authorization = authorization.and_then(|value| value.to_str().ok());
    console.access.caller(authorization).ok_or_else(|| {
        Problem::new(Code::TokenNeeded, "send Authorization: Bearer and a token").with_header(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"onceward\""),
        )
    })
}

/// The one host that a request names, in lower case.
fn host(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let mut named = headers.get_all(header::HOST).iter();
    let host = match (named.next(), named.next()) {
        (Some(host), None) => host.to_str().ok()?,
        (None, _) => uri.authority()?.as_str(),
        (Some(_), Some(_)) => return None,
    };
    Some(host.to_ascii_lowercase())
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Refuses what a browser sends for another site's page.
fn check_site(headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let refused = || {
        Problem::new(
            Code::CrossSite,
            "the request was made by another site's page",
        )
    };
    for site in headers.get_all(SEC_FETCH_SITE) {
        if site != "same-origin" && site != "none" {
            return Err(refused());
        }
    }
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let own = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        if own != Some(host) {
            return Err(refused());
        }
    }
    Ok(())
}

/// Asks for a scope.
pub(crate) fn require(caller: &Caller, scope: Scope) -> Result<(), Problem> {
    if caller.may(scope) {
        return Ok(());
    }
    let challenge = HeaderValue::from_static(match scope {
        Scope::Publish => "Bearer error=\"insufficient_scope\", scope=\"publish\"",
        Scope::Read => "Bearer error=\"insufficient_scope\", scope=\"read\"",
        Scope::Operate => "Bearer error=\"insufficient_scope\", scope=\"operate\"",
        Scope::Reveal => "Bearer error=\"insufficient_scope\", scope=\"reveal\"",
    });
    let detail = format!("{} lacks the scope {}", caller.name, scope.as_str());
    Err(Problem::new(Code::ScopeMissing, detail)
        .with("scope", scope.as_str())
        .with_header(header::WWW_AUTHENTICATE, challenge))
}

/// Answers are for their caller alone and are what they say they are.
pub(crate) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

pub(crate) async fn no_such_path() -> Problem {
    Problem::new(Code::NoPath, "there is nothing at this path")
}

pub(crate) async fn no_such_method(method: Method) -> Problem {
    Problem::new(Code::NoMethod, format!("{method} is not possible here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lose_their_port_only() {
        for (host, name) in [
            ("localhost:80", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("evil.example:80:80", "evil.example:80"),
        ] {
            assert_eq!(name_of(host), name);
        }
    }
}
