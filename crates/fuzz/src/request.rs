//! Headers and body out of bytes, split as they would be on a wire.

/// Lines up to the first blank one, and what is behind it.
pub(crate) fn head_and_body(data: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut head = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    (head, rest)
}

/// Name and value of a header's line; a line without a colon has no value.
pub(crate) fn header(line: &[u8]) -> (String, &[u8]) {
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = match colon {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, b"".as_slice()),
    };
    (String::from_utf8_lossy(name).into_owned(), value)
}
