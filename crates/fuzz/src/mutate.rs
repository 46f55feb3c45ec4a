//! Seeded changes to an input: the same seed makes the same input, on every machine.

use fastrand::Rng;

/// Bytes that mean something to one parser or another.
const TELLING: &[u8] = b"\0\x01\t\n\r \"%'+,-./09:;=?@[\\]_az{}\x7f\x80\xc3\xff";

/// Longest input that is made, in bytes.
const BYTES_MAX: usize = 1 << 14;

/// A changed copy of one of the entries, of which there must be one at least.
#[must_use]
pub fn mutated(rng: &mut Rng, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut data = entries[rng.usize(..entries.len())].clone();
    for _ in 0..rng.u32(1..6) {
        change(rng, &mut data, &entries[rng.clone().usize(..entries.len())]);
    }
    data.truncate(BYTES_MAX);
    data
}

fn change(rng: &mut Rng, data: &mut Vec<u8>, other: &[u8]) {
    let at = rng.usize(..=data.len());
    match rng.u32(..8) {
        0 => {
            if let Some(byte) = data.get_mut(at) {
                *byte ^= 1 << rng.u32(..8);
            }
        }
        1 => {
            if let Some(byte) = data.get_mut(at) {
                *byte = TELLING[rng.usize(..TELLING.len())];
            }
        }
        2 => data.insert(at, TELLING[rng.usize(..TELLING.len())]),
        3 => {
            let end = (at + rng.usize(1..16)).min(data.len());
            data.drain(at..end);
        }
        4 => data.truncate(at),
        5 => {
            let part = part(rng, data);
            data.splice(at..at, part);
        }
        6 => {
            let part = part(rng, other);
            let end = (at + part.len()).min(data.len());
            data.splice(at..end, part);
        }
        _ => {
            let part = part(rng, other);
            data.splice(at..at, part);
        }
    }
}

/// Some bytes of an input, at times many times over.
fn part(rng: &mut Rng, data: &[u8]) -> Vec<u8> {
    if data.is_empty() {
        return Vec::new();
    }
    let start = rng.usize(..data.len());
    let end = (start + rng.usize(1..64)).min(data.len());
    let times = if rng.u32(..8) == 0 {
        rng.usize(1..64)
    } else {
        1
    };
    data[start..end].repeat(times)
}
