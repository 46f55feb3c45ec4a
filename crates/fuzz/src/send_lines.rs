//! What `onceward send` reads: each line that is not blank, by its number, as it would be read
//! alone.

use onceward_cli::commands::send::read_all;
use onceward_core::cloudevents::from_structured;

use crate::place;

/// Lines of events.
pub(crate) fn read(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime can be made");
    let read = runtime.block_on(read_all(data.to_vec()));
    let mut read = read.expect("what is in memory can be read").into_iter();
    for (number, line) in (1..).zip(data.split(|byte| *byte == b'\n')) {
        let mut line = line.trim_ascii();
        if number == 1 {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            continue;
        }
        let (numbered, found) = read.next().expect("a line is left out");
        assert_eq!(numbered, number, "the place of a line is wrong");
        match (found, from_structured(line)) {
            (Ok(event), Ok(expected)) => assert_eq!(event, expected),
            (Err((pointer, message)), Err(fault)) => {
                assert_eq!(pointer.as_deref(), fault.place.pointer());
                place::plain(&message);
                place::in_document(&fault, line);
            }
            (found, _) => panic!("line {number} alone reads differently: {found:?}"),
        }
    }
    assert!(read.next().is_none(), "a line comes from nowhere");
}
