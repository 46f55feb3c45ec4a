//! What is ordered: from a seed, or from a file of JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use onceward_orders::carrier::COUNTRIES;
use onceward_orders::request::OrderRequest;
use onceward_orders::service::BODY_BYTES_MAX;

use crate::error::{Code, Error};

/// Share of made-up orders to a country that the carrier does not know, in percent.
const UNSUPPORTED_PERCENT: u32 = 5;

/// One order to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    /// Line of the file, counted from 1; 0 where there is none.
    pub(super) line: u64,
    /// The operation, which is also the idempotency key.
    pub(super) checkout_id: String,
    /// The request, as it is sent.
    pub(super) body: Vec<u8>,
}

/// A line that could not be ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// Line of the file, counted from 1; 0 where there is none.
    pub(super) line: u64,
    /// Why.
    pub(super) reason: String,
}

/// Orders made up from a seed.
pub(super) fn made_up(orders: u32, seed: u64) -> Vec<Input> {
    const CITIES: [&str; 5] = ["Hamburg", "Lyon", "Gdańsk", "Ghent", "Zürich"];
    let mut random = fastrand::Rng::with_seed(seed);
    let make = |i: u32| {
        let country = match random.u32(..100) < UNSUPPORTED_PERCENT {
            true => "AQ",
            false => COUNTRIES[random.usize(..COUNTRIES.len())],
        };
        let checkout_id = format!("checkout-{seed}-{i}");
        let body = serde_json::json!({
            "checkout_id": checkout_id,
            "address": {
                "country": country,
                "city": CITIES[random.usize(..CITIES.len())],
                "street": format!("Kai {}", random.u32(1..200)),
            },
        });
        Input {
            line: 0,
            checkout_id,
            body: body.to_string().into_bytes(),
        }
    };
    (1..=orders).map(make).collect()
}

/// Orders from a file, `-` for standard input, one JSON object per line. Lines that are none are
/// set aside; the rest goes on.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn from_file(path: &Path) -> Result<(Vec<Input>, Vec<Refused>), Error> {
    let shown = path.display();
    let unreadable =
        |e: io::Error| Error::new(Code::Input, format!("could not read {shown}")).with_source(e);
    let reader: Box<dyn BufRead> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path).map_err(unreadable)?)),
    };
    read_lines(reader).map_err(unreadable)
}

fn read_lines(mut reader: impl BufRead) -> io::Result<(Vec<Input>, Vec<Refused>)> {
    let (mut inputs, mut refused) = (Vec::new(), Vec::new());
    let mut line = 0;
    loop {
        let mut bytes = Vec::new();
        if reader.read_until(b'\n', &mut bytes)? == 0 {
            return Ok((inputs, refused));
        }
        line += 1;
        let body = bytes.trim_ascii();
        if body.is_empty() {
            continue;
        }
        if body.len() > BODY_BYTES_MAX {
            let reason = format!("longer than {BODY_BYTES_MAX} bytes");
            refused.push(Refused { line, reason });
            continue;
        }
        match OrderRequest::parse(body) {
            Ok(request) => inputs.push(Input {
                line,
                checkout_id: request.checkout_id,
                body: body.to_vec(),
            }),
            Err(fault) => {
                let reason = fault.to_string();
                refused.push(Refused { line, reason });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_orders_again() {
        let orders = made_up(400, 7);
        assert_eq!(orders.len(), 400);
        assert_eq!(orders, made_up(400, 7));
        assert_ne!(orders, made_up(400, 8));
        let away = orders
            .iter()
            .filter(|o| o.body.windows(4).any(|w| w == b"\"AQ\""));
        assert!((5..60).contains(&away.count()));
    }

    #[test]
    fn bad_lines_are_named_and_the_rest_goes_on() {
        let good = String::from_utf8(made_up(1, 1)[0].body.clone()).unwrap();
        let mut text = format!("{good}\nodd\n\n  {good}  \r\n").into_bytes();
        text.extend(b"\xff\xfe\n");
        text.extend(good.as_bytes());
        text.extend(b"\n");
        text.extend(vec![b'x'; BODY_BYTES_MAX + 1]);
        let (inputs, refused) = read_lines(text.as_slice()).unwrap();
        assert_eq!(inputs.iter().map(|i| i.line).collect::<Vec<_>>(), [1, 4, 6]);
        assert!(inputs.iter().all(|i| i.body == good.as_bytes()));
        assert_eq!(
            refused.iter().map(|r| r.line).collect::<Vec<_>>(),
            [2, 5, 7]
        );
    }
}
