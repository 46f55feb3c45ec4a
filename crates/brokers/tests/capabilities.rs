//! The table in the guide says what the adapters say of themselves.

use std::fs;
use std::path::Path;

use onceward_core::broker::Capabilities;

#[test]
fn the_guides_table_is_current() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/brokers.md");
    let text = fs::read_to_string(guide).expect("the guide is there");
    let rows = onceward_brokers::capabilities();
    assert_eq!(rows.len(), 2, "every adapter of this build");
    let rows = rows.iter().map(|(name, can)| can.table_row(name));
    let table = [Capabilities::TABLE_HEAD.to_owned()]
        .into_iter()
        .chain(rows);
    let table = table.collect::<Vec<_>>().join("\n");
    assert!(
        text.contains(&table),
        "docs/guides/brokers.md is to hold this table:\n\n{table}\n"
    );
}
