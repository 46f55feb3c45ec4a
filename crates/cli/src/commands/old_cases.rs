//! Cases beyond their retention, for people.

use std::time::Duration;

use onceward_console::overview::OldCases;

/// That there are some, and what to do.
#[must_use]
pub fn words(old: &OldCases) -> String {
    let kept = humantime::format_duration(Duration::from_millis(old.retention_ms));
    let kept = kept.to_string().replace(' ', "");
    format!(
        "cases from {} on are older than {kept} ([retention] cases) and are never removed by \
         themselves: decide about those that are not over, then onceward quarantine purge \
         --older-than {kept} --why …",
        old.oldest_case_id
    )
}
