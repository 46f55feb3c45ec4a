//! Reads a TOML document setting by setting: every fault is kept with its place, and reading goes
//! on, so that one run shows them all.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{FaultCode, RawFault};
use crate::output::plain;

/// A value and where it stands in the file.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: Range<usize>,
}

/// What is found while reading.
#[derive(Default)]
pub(super) struct Findings {
    faults: RefCell<Vec<RawFault>>,
    places: RefCell<BTreeMap<String, Range<usize>>>,
}

impl Findings {
    pub(super) fn fault(&self, code: FaultCode, place: &Range<usize>, message: impl Into<String>) {
        self.faults.borrow_mut().push(RawFault {
            code,
            place: place.clone(),
            // Names that the author chose are part of it.
            message: plain(&message.into()),
        });
    }

    /// The place of a setting by its dotted path; where it is not in the file, of what is around.
    pub(super) fn place_of(&self, path: &str) -> Range<usize> {
        let places = self.places.borrow();
        let mut path = path;
        loop {
            if let Some(place) = places.get(path) {
                return place.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return 0..0,
            }
        }
    }

    fn remember(&self, path: String, place: &Range<usize>) {
        self.places.borrow_mut().insert(path, place.clone());
    }

    pub(super) fn into_faults(self) -> Vec<RawFault> {
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|fault| fault.place.start);
        faults
    }
}

/// A table, with the keys that were asked for: what nobody asked for is unknown.
pub(super) struct Section<'a> {
    pub(super) findings: &'a Findings,
    pub(super) path: String,
    /// The key or header that opened it.
    pub(super) place: Range<usize>,
    table: &'a DeTable<'a>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Section<'a> {
    pub(super) fn root(findings: &'a Findings, table: &'a DeTable<'a>) -> Self {
        Self::new(findings, String::new(), 0..0, table)
    }

    fn new(
        findings: &'a Findings,
        path: String,
        place: Range<usize>,
        table: &'a DeTable<'a>,
    ) -> Self {
        findings.remember(path.clone(), &place);
        Self {
            findings,
            path,
            place,
            table,
            asked: RefCell::new(BTreeSet::new()),
        }
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn name(&self) -> String {
        if self.path.is_empty() {
            "at the top of the file".to_owned()
        } else {
            format!("in [{}]", self.path)
        }
    }

    pub(super) fn fault(&self, code: FaultCode, place: &Range<usize>, message: impl Into<String>) {
        self.findings.fault(code, place, message);
    }

    /// The key's place and its value.
    fn ask(&self, key: &'static str) -> Option<(Range<usize>, &'a Spanned<DeValue<'a>>)> {
        self.asked.borrow_mut().insert(key);
        let (name, value) = self.table.get_key_value(key)?;
        self.findings.remember(self.path_of(key), &name.span());
        Some((name.span(), value))
    }

    fn wrong_type(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let found = type_of(value.get_ref());
        let message = format!("{key} must be {wanted}, but this is {found}");
        self.fault(FaultCode::BadValue, &value.span(), message);
    }

    /// Whether the key is there, whatever its value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn text(&self, key: &'static str) -> Option<Placed<String>> {
        let (_, value) = self.ask(key)?;
        let place = value.span();
        match value.get_ref() {
            DeValue::String(text) => Some(Placed {
                value: text.to_string(),
                place,
            }),
            _ => {
                self.wrong_type(key, value, "a string");
                None
            }
        }
    }

    /// A text, or a date and time in its text form.
    pub(super) fn text_or_time(&self, key: &'static str) -> Option<Placed<String>> {
        let (_, value) = self.ask(key)?;
        match value.get_ref() {
            DeValue::Datetime(time) => Some(Placed {
                value: time.to_string(),
                place: value.span(),
            }),
            _ => self.text(key),
        }
    }

    /// Reports a setting that must be there at the header of its section.
    pub(super) fn missing(&self, key: &str, wanted: &str) {
        let message = format!("{key} is missing {}: {wanted}", self.name());
        self.fault(FaultCode::MissingKey, &self.place, message);
    }

    pub(super) fn texts(&self, key: &'static str) -> Option<Placed<Vec<Placed<String>>>> {
        let (_, value) = self.ask(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(key, value, "a list of strings");
            return None;
        };
        let mut texts = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let place = item.span();
            self.findings
                .remember(format!("{}[{i}]", self.path_of(key)), &place);
            match item.get_ref() {
                DeValue::String(text) => texts.push(Placed {
                    value: text.to_string(),
                    place,
                }),
                _ => self.wrong_type(&format!("{key}[{i}]"), item, "a string"),
            }
        }
        Some(Placed {
            value: texts,
            place: value.span(),
        })
    }

    /// A list of texts, or one by itself.
    pub(super) fn one_or_more(&self, key: &'static str) -> Option<Vec<Placed<String>>> {
        let (_, value) = self.ask(key)?;
        match value.get_ref() {
            DeValue::Array(_) => self.texts(key).map(|texts| texts.value),
            _ => self.text(key).map(|text| vec![text]),
        }
    }

    /// A whole number that fits `T`.
    pub(super) fn whole<T: TryFrom<u64>>(&self, key: &'static str) -> Option<T> {
        let (_, value) = self.ask(key)?;
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(key, value, "a whole number");
            return None;
        };
        let parsed = u64::from_str_radix(number.as_str(), number.radix());
        let fitting = parsed.ok().and_then(|number| T::try_from(number).ok());
        if fitting.is_none() {
            let message = format!("{key} = {number} is out of range");
            self.fault(FaultCode::BadValue, &value.span(), message);
        }
        fitting
    }

    /// true or false.
    pub(super) fn flag(&self, key: &'static str) -> Option<bool> {
        let (_, value) = self.ask(key)?;
        let DeValue::Boolean(flag) = value.get_ref() else {
            self.wrong_type(key, value, "true or false");
            return None;
        };
        Some(*flag)
    }

    pub(super) fn number(&self, key: &'static str) -> Option<f64> {
        let (_, value) = self.ask(key)?;
        let parsed = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) => number.as_str().parse().ok(),
            _ => None,
        };
        if parsed.is_none() {
            self.wrong_type(key, value, "a number");
        }
        parsed
    }

    /// A duration in milliseconds: `in_ms` (`timeout_ms`) as a whole number, or `in_words`
    /// (`timeout`) as text with units.
    pub(super) fn duration_ms(&self, in_words: &'static str, in_ms: &'static str) -> Option<u64> {
        let words = self.ask(in_words);
        let ms = self.ask(in_ms);
        if let (Some((place, _)), Some(_)) = (&words, &ms) {
            let message = format!("{in_words} and {in_ms} say the same thing: keep one of them");
            self.fault(FaultCode::BadValue, place, message);
        }
        if let Some((place, value)) = words {
            // Whatever looks for this setting by its name in milliseconds finds it here.
            self.findings.remember(self.path_of(in_ms), &place);
            return self.words_ms(in_words, in_ms, value);
        }
        let (_, value) = ms?;
        if let DeValue::String(text) = value.get_ref() {
            let message = format!(
                "{in_ms} is a whole number of milliseconds; with a unit it is {in_words} = {text:?}"
            );
            self.fault(FaultCode::BadValue, &value.span(), message);
            return None;
        }
        self.whole(in_ms)
    }

    fn words_ms(&self, in_words: &str, in_ms: &str, value: &Spanned<DeValue<'_>>) -> Option<u64> {
        let message = match value.get_ref() {
            DeValue::String(text) => match humantime::parse_duration(text) {
                Ok(duration) => match u64::try_from(duration.as_millis()) {
                    Ok(ms) => return Some(ms),
                    Err(_) => format!("{in_words} is too long"),
                },
                Err(error) => {
                    format!("{text:?} is no duration ({error}); write it as \"30s\" or \"1h 30m\"")
                }
            },
            DeValue::Integer(number) => format!(
                "{in_words} needs a unit: {in_words} = \"{number}s\", or {in_ms} = {number} for \
                 milliseconds"
            ),
            _ => {
                self.wrong_type(in_words, value, "a duration such as \"30s\"");
                return None;
            }
        };
        self.fault(FaultCode::BadValue, &value.span(), message);
        None
    }

    /// One of a few words.
    pub(super) fn choice<T: Clone>(
        &self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.text(key)?;
        let found = choices.iter().find(|(word, _)| *word == text.value);
        if found.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            let message = format!(
                "{key} = {:?} is none of {}{}",
                text.value,
                quoted.join(", "),
                suggestion(&text.value, words.iter().copied())
            );
            self.fault(FaultCode::BadValue, &text.place, message);
        }
        found.map(|(_, choice)| choice.clone())
    }

    pub(super) fn section(&self, key: &'static str) -> Option<Section<'a>> {
        let (place, value) = self.ask(key)?;
        match value.get_ref() {
            DeValue::Table(table) => {
                Some(Self::new(self.findings, self.path_of(key), place, table))
            }
            _ => {
                self.wrong_type(key, value, "a table");
                None
            }
        }
    }

    /// The tables of a map from names of the author's choice; `quoted` names stand in quotes in
    /// paths.
    pub(super) fn named_sections(
        &self,
        key: &'static str,
        quoted: bool,
    ) -> Vec<(String, Section<'a>)> {
        let Some(map) = self.section(key) else {
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (name, value) in map.table {
            let name_text = name.get_ref().to_string();
            let shown = if quoted {
                format!("{name_text:?}")
            } else {
                name_text.clone()
            };
            match value.get_ref() {
                DeValue::Table(table) => {
                    let path = map.path_of(&shown);
                    let section = Self::new(self.findings, path, name.span(), table);
                    sections.push((name_text, section));
                }
                _ => self.wrong_type(&map.path_of(&shown), value, "a table"),
            }
        }
        sections
    }

    /// The tables of a list of tables.
    pub(super) fn listed_sections(&self, key: &'static str) -> Vec<Section<'a>> {
        let Some((_, value)) = self.ask(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(
                key,
                value,
                &format!("a list of tables ([[{}]])", self.path_of(key)),
            );
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let path = format!("{}[{i}]", self.path_of(key));
            match item.get_ref() {
                DeValue::Table(table) => {
                    sections.push(Self::new(self.findings, path, item.span(), table));
                }
                _ => self.wrong_type(&path, item, "a table"),
            }
        }
        sections
    }

    /// Refuses a part that this build does not have.
    pub(super) fn not_in_this_build(&self, key: &'static str) {
        if let Some((place, _)) = self.ask(key) {
            let message =
                format!("this build of onceward has no [{key}]: remove the section or update");
            self.fault(FaultCode::NotInThisBuild, &place, message);
        }
    }

    /// Refuses every key that was not asked for, with the nearest that was.
    pub(super) fn finish(self) {
        let asked = self.asked.borrow();
        for (name, _) in self.table {
            let key = name.get_ref().as_ref();
            if !asked.contains(key) {
                let message = format!(
                    "no setting is called {key:?} {}{}",
                    self.name(),
                    suggestion(key, asked.iter().copied())
                );
                self.fault(FaultCode::UnknownKey, &name.span(), message);
            }
        }
    }
}

fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Longest word that is compared with others, in bytes: comparing costs the product of the lengths,
/// in memory too.
const COMPARED_BYTES_MAX: usize = 200;

/// Most words that one is compared with.
const COMPARED_MAX: usize = 1_000;

/// `; did you mean "x"?` for the nearest of the known words, or nothing when none is near.
pub(crate) fn suggestion<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> String {
    if word.len() > COMPARED_BYTES_MAX {
        return String::new();
    }
    let lower = word.to_lowercase();
    let nearest = known
        .take(COMPARED_MAX)
        .filter(|candidate| candidate.len() <= COMPARED_BYTES_MAX)
        .map(|candidate| (strsim::damerau_levenshtein(&lower, candidate), candidate))
        .min();
    match nearest {
        Some((distance, candidate)) if distance <= candidate.len().max(word.len()).div_ceil(2) => {
            format!("; did you mean {candidate:?}?")
        }
        _ => String::new(),
    }
}
