//! Taking hidden values out of a text.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{HIDDEN, Sensitivity};
use crate::envelope::Payload;

/// Shorter values are too common to be told from other words, in characters.
const CHARS_MIN: usize = 4;
/// More values are not looked for: then the whole text is hidden.
const VALUES_MAX: usize = 4_096;
/// What is looked for in a payload that is not JSON: what stands between these, as far as it is
/// text.
const SEPARATORS: &[char] = &[
    ',', ';', ':', '|', '=', '"', '\'', '<', '>', '{', '}', '[', ']', '\t', '\n', '\r', '\0',
];

pub(super) fn scrub(
    sensitivity: &Sensitivity,
    text: &str,
    payload: &Payload,
    open: &[&str],
) -> String {
    if text.chars().nth(CHARS_MIN - 1).is_none() {
        return text.to_owned();
    }
    let mut wanted = BTreeSet::new();
    let mut want = |word: &str| {
        let is_long = word.chars().nth(CHARS_MIN - 1).is_some();
        if is_long && word.len() <= text.len() && !open.contains(&word) {
            wanted.insert(word.to_owned());
        }
    };
    match payload {
        Payload::Json(json) => match serde_json::from_str::<Value>(json) {
            Ok(value) => {
                sensitivity.each_hidden(&value, &mut |hidden| each_form(hidden, &mut want));
            }
            Err(_) => each_word(json, &mut want),
        },
        Payload::Binary(bytes) => {
            each_word(&String::from_utf8_lossy(bytes), &mut want);
        }
    }
    if wanted.len() > VALUES_MAX {
        return HIDDEN.to_owned();
    }
    // The longest first: one value may be a part of another.
    let mut words: Vec<String> = wanted.into_iter().collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let mut scrubbed = text.to_owned();
    for word in words {
        if scrubbed.contains(&word) {
            scrubbed = scrubbed.replace(&word, HIDDEN);
        }
    }
    scrubbed
}

fn each_word(text: &str, want: &mut impl FnMut(&str)) {
    text.split(SEPARATORS).map(str::trim).for_each(want);
}

/// A value as a text may quote it: by itself, and escaped as in JSON and in Rust.
fn each_form(value: &Value, want: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => {
            want(text);
            let json = value.to_string();
            let debug = format!("{text:?}");
            for quoted in [json, debug] {
                let inner = quoted.trim_start_matches('"');
                want(inner.strip_suffix('"').unwrap_or(inner));
            }
        }
        Value::Number(number) => want(&number.to_string()),
        _ => {}
    }
}
