//! The codes of problems, and their pages.

macro_rules! codes {
    ($($(#[$doc:meta])+ $name:ident = $code:literal $status:literal $title:literal,)+) => {
        /// Stable codes of what can go wrong over HTTP. Each has a page, which says what happened,
        /// why, and what to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])+ $name,)+
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The code as it is shown.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("OW", $code),)+
                }
            }

            /// The problem's `type`.
            #[must_use]
            pub const fn type_uri(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("https://onceward.dev/errors/OW", $code),)+
                }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)+
                }
            }

            /// The problem's title, which is also the page's.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)+
                }
            }

            /// The page, as Markdown.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!(
                        env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/OW", $code, ".md"
                    )),)+
                }
            }
        }
    };
}

codes! {
    /// An event cannot be read.
    EventUnreadable = "2001" 400 "an event cannot be read",
    /// The content type carries no event.
    ContentType = "2002" 415 "the content type carries no event",
    /// The body is too large.
    TooLarge = "2003" 413 "the request is too large",
    /// `Idempotency-Key` cannot be read.
    KeyUnreadable = "2004" 400 "the idempotency key cannot be read",
    /// The key was used with another request.
    KeyReused = "2005" 422 "the idempotency key belongs to another request",
    /// The key is being worked on.
    KeyInFlight = "2006" 409 "a request with this key is being worked on",
    /// The message type is not declared.
    UnknownType = "2007" 422 "the message type is not declared",
    /// The database refused the data.
    DataRefused = "2008" 422 "the database refused the data",
    /// The body did not arrive in time.
    TooSlow = "2009" 408 "the request did not arrive in time",
    /// A token is needed.
    TokenNeeded = "2010" 401 "a valid token is needed",
    /// The token lacks a scope.
    ScopeMissing = "2011" 403 "the token does not allow this",
    /// The host is not ours.
    HostUnknown = "2012" 421 "the host is not one of this listener's names",
    /// The request comes from another site.
    CrossSite = "2013" 403 "requests from other sites are refused",
    /// The listener would be open to others.
    Exposed = "2014" 403 "without a token only loopback is served",
    /// The store is away.
    StoreAway = "2020" 503 "the database is away",
    /// Not ready for work.
    NotReady = "2021" 503 "not ready for work",
    /// The store is full.
    StoreFull = "2022" 429 "the database is full",
    /// Something that should not happen.
    Internal = "2023" 500 "the request failed",
    /// New work would not be finished in time.
    Throttled = "2024" 429 "new work would not be done in time",
    /// No such operation.
    NoOperation = "2030" 404 "no such operation",
    /// No such path.
    NoPath = "2031" 404 "no such path",
    /// The path has no such method.
    NoMethod = "2032" 405 "no such method here",
    /// Somebody acted on the case before.
    CaseMoved = "2040" 409 "somebody acted on the case before",
    /// The action is not possible.
    CaseRefused = "2041" 422 "the action is not possible",
    /// No such case.
    NoCase = "2042" 404 "no such case",
    /// The corrected payload is not valid.
    PayloadRefused = "2043" 422 "the payload is not valid",
    /// The body of an action cannot be read.
    ActionUnreadable = "2044" 400 "the action cannot be read",
    /// The path or the query cannot be read.
    AddressUnreadable = "2033" 400 "the address cannot be read",
    /// No such subscription.
    NoSubscription = "2034" 404 "no such subscription",
    /// No such campaign.
    NoCampaign = "2035" 404 "no such replay campaign",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_says_what_happened_why_and_what_to_do() {
        for code in Code::ALL {
            let page = code.page();
            let heading = format!("# {}: {}\n", code.as_str(), code.title());
            assert!(page.starts_with(&heading), "{}", code.as_str());
            for section in ["## What happened\n", "## Likely cause\n", "## What to do\n"] {
                assert!(page.contains(section), "{} lacks {section}", code.as_str());
            }
        }
    }

    #[test]
    fn codes_are_given_once() {
        let mut seen: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), Code::ALL.len());
    }
}
