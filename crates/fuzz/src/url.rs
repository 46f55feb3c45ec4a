//! Addresses of stores and of targets: no password is ever shown.

use std::path::Path;

use onceward_cli::store_url::{StoreKind, check, has_password, redact, relative_to, sqlite_path};
use onceward_cli::target;
use url::Url;

use crate::place;

/// An address.
pub(crate) fn read(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let shown = redact(text);
    assert_eq!(redact(&shown), shown, "what is shown has something to hide");
    hides(text, &shown);
    match check(text) {
        Ok(StoreKind::Postgres) => assert_eq!(sqlite_path(text), None),
        Ok(StoreKind::Sqlite) => starts_from_a_folder(text),
        Err(words) => {
            place::plain(&words);
            hides(text, &words);
        }
    }
    match target::check(text) {
        Ok(url) => {
            assert!(
                url.host_str().is_some_and(|host| !host.is_empty()),
                "{url} has no host"
            );
            assert!(url.password().is_none() && url.username().is_empty());
        }
        Err(words) => {
            place::plain(&words);
            hides(text, &words);
        }
    }
}

/// A password that the address holds is not in a text made of it, unless it stands elsewhere in the
/// address too.
fn hides(text: &str, shown: &str) {
    let Some(url) = Url::parse(text).ok() else {
        return;
    };
    if sqlite_path(text).is_some() {
        return;
    }
    let asked = url.query_pairs();
    let asked = asked.filter(|(key, _)| key.eq_ignore_ascii_case("password"));
    let asked = asked.map(|(_, value)| value.into_owned());
    // Our own words may have it in them by chance.
    let words = redact("postgres://u:hidden-away@[");
    for password in url.password().map(str::to_owned).into_iter().chain(asked) {
        let is_only_there = text.matches(&password).count() == 1;
        if password.len() > 7 && is_only_there {
            assert!(has_password(text), "{password:?} is not noticed");
            let is_ours = words.contains(&password);
            assert!(
                is_ours || !shown.contains(&password),
                "{password:?} is shown"
            );
        }
    }
}

/// A file's address becomes absolute once, and names the same file from then on.
fn starts_from_a_folder(text: &str) {
    let folder = Path::new("/srv/shop");
    let made = relative_to(text, folder);
    assert_eq!(check(&made), Ok(StoreKind::Sqlite), "{made:?}");
    assert_eq!(relative_to(&made, folder), made);
    let (path, full) = (sqlite_path(text), sqlite_path(&made));
    let (path, full) = (path.unwrap_or_default(), full.unwrap_or_default());
    let is_kept = path == ":memory:" || Path::new(path).is_absolute();
    let expected = if is_kept {
        path.into()
    } else {
        folder.join(path)
    };
    assert_eq!(Path::new(full), expected);
}
