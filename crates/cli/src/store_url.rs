//! Addresses of stores: `postgres://…` and `sqlite:PATH`.

use std::path::Path;

use reqwest::Url;

/// Which store an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// Which store an address names.
///
/// # Errors
/// In words, when it names none.
pub fn check(url: &str) -> Result<StoreKind, String> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => Ok(StoreKind::Postgres),
        Some("sqlite") if sqlite_path(url).is_some_and(|path| !path.is_empty()) => {
            Ok(StoreKind::Sqlite)
        }
        _ => Err(format!(
            "{:?} names no store: it is \"sqlite:FILE\" or \"postgres://user@host/database\"",
            redact(url)
        )),
    }
}

/// Whether the address holds a password.
#[must_use]
pub fn has_password(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| {
        url.password().is_some() || url.query_pairs().any(|(key, _)| is_password(&key))
    })
}

fn is_password(key: &str) -> bool {
    key.to_ascii_lowercase().contains("password")
}

/// The address without its password.
#[must_use]
pub fn redact(url: &str) -> String {
    if sqlite_path(url).is_some() {
        return url.to_owned();
    }
    let parsed = Url::parse(url).ok().filter(|parsed| {
        // A password with a slash ends up behind the host.
        let behind = [Some(parsed.path()), parsed.query(), parsed.fragment()];
        !behind.into_iter().flatten().any(|part| part.contains('@'))
    });
    let Some(mut parsed) = parsed else {
        // Not to be shown at all if it might hold a password in some form that does not parse.
        return match url.contains('@') || is_password(url) {
            true => "<an address that does not parse>".to_owned(),
            false => url.to_owned(),
        };
    };
    if !has_password(url) {
        return url.to_owned();
    }
    if parsed.password().is_some() {
        // Only an address without a host refuses a password, and such a one has none.
        let _ = parsed.set_password(Some("***"));
    }
    if parsed.query().is_some() {
        let pairs: Vec<(String, String)> = parsed.query_pairs().into_owned().collect();
        parsed
            .query_pairs_mut()
            .clear()
            .extend_pairs(pairs.iter().map(|(key, value)| {
                let shown = match is_password(key) {
                    true => "***",
                    false => value.as_str(),
                };
                (key.as_str(), shown)
            }));
    }
    parsed.to_string()
}

/// The path of a SQLite address, without its options.
#[must_use]
pub fn sqlite_path(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("sqlite:")?;
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    Some(rest.split('?').next().unwrap_or(rest))
}

/// The address with a relative SQLite path made to start from `folder`.
#[must_use]
pub fn relative_to(url: &str, folder: &Path) -> String {
    let Some(path) = sqlite_path(url) else {
        return url.to_owned();
    };
    if path.is_empty() || path == ":memory:" || Path::new(path).is_absolute() {
        return url.to_owned();
    }
    let options = url
        .split_once('?')
        .map(|(_, options)| format!("?{options}"));
    let path = folder.join(path);
    format!("sqlite://{}{}", path.display(), options.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_and_withheld() {
        for url in [
            "postgres://app:hunter2@db/app",
            "postgres://db/app?user=a&password=hunter2",
        ] {
            assert!(has_password(url), "{url}");
            let shown = redact(url);
            assert!(
                !shown.contains("hunter2") && shown.contains("***"),
                "{shown}"
            );
            assert!(shown.contains("db/app"), "{shown}");
        }
        for url in [
            "postgres://app@db/app",
            "sqlite:a.db",
            "sqlite:///tmp/a.db?mode=rwc",
        ] {
            assert!(!has_password(url), "{url}");
            assert_eq!(redact(url), url);
        }
        for url in [
            "postgres://app:hunt/er2@[",
            "postgres://app:12/hunter2@db/app",
            "app:hunter2@db/app",
            "host=db user=app password=hunter2",
            "mysql://app:hunter2@db/app",
            "postgres://db/app?sslPassword=hunter2",
        ] {
            assert!(!redact(url).contains("hunt"), "{}", redact(url));
        }
    }

    #[test]
    fn addresses_name_a_store_or_none() {
        assert_eq!(check("sqlite:a.db"), Ok(StoreKind::Sqlite));
        assert_eq!(check("sqlite:///x/a.db"), Ok(StoreKind::Sqlite));
        assert_eq!(check("postgresql://localhost/x"), Ok(StoreKind::Postgres));
        for url in ["", "a.db", "mysql://x/y", "sqlite:", "sqlite://"] {
            assert!(check(url).is_err(), "{url}");
        }
    }

    #[test]
    fn relative_files_start_from_the_folder() {
        let to = |url| relative_to(url, Path::new("/etc/shop"));
        assert_eq!(to("sqlite:a.db"), "sqlite:///etc/shop/a.db");
        assert_eq!(
            to("sqlite://data/a.db?mode=ro"),
            "sqlite:///etc/shop/data/a.db?mode=ro"
        );
        assert_eq!(to("sqlite:/abs/a.db"), "sqlite:/abs/a.db");
        assert_eq!(to("postgres://db/app"), "postgres://db/app");
    }
}
