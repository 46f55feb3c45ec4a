use super::*;

/// Records in which `ord-1` was shipped and `ord-2` rejected.
fn good() -> Records {
    let row = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    Records {
        answers: vec![answer("c-1", "ord-1", false), answer("c-2", "ord-2", false)],
        books: Books {
            orders: vec![
                row("ord-1", "c-1", "shipped"),
                row("ord-2", "c-2", "rejected"),
            ],
            shipments: vec![row("ord-1", "c-1", "bk-1")],
            rejections: vec![row("ord-2", "c-2", "unsupported_address")],
        },
        bookings: vec![booked("c-1", "bk-1")],
        carrier_repeats: 0,
        quarantined: BTreeSet::new(),
    }
}

fn answer(checkout_id: &str, order_id: &str, is_replayed: bool) -> Answer {
    Answer {
        checkout_id: checkout_id.to_owned(),
        order_id: order_id.to_owned(),
        is_replayed,
    }
}

fn booked(operation: &str, booking: &str) -> Booked {
    Booked {
        operation: operation.to_owned(),
        booking: booking.to_owned(),
    }
}

/// Lost, doubled, unasked.
fn faults(change: impl FnOnce(&mut Records)) -> (u64, u64, u64) {
    let mut records = good();
    change(&mut records);
    let verdict = judge(&records);
    assert_eq!(
        verdict.is_good(),
        verdict.findings.is_empty(),
        "{verdict:?}"
    );
    (verdict.lost, verdict.doubled, verdict.unasked)
}

#[test]
fn records_that_agree_are_good() {
    let verdict = judge(&good());
    assert!(verdict.is_good());
    let expected = Verdict {
        accepted: 2,
        shipped: 1,
        rejected: 1,
        ..Verdict::default()
    };
    assert_eq!(verdict, expected);
    assert_eq!(judge(&Records::default()), Verdict::default());
}

#[test]
fn repeats_that_were_suppressed_are_counted_and_are_no_fault() {
    let mut records = good();
    records.answers.push(answer("c-1", "ord-1", true));
    records.carrier_repeats = 2;
    let verdict = judge(&records);
    assert!(verdict.is_good());
    assert_eq!((verdict.accepted, verdict.duplicates_suppressed), (2, 3));
}

#[test]
fn an_acknowledged_order_that_is_not_there_is_lost() {
    let gone = |r: &mut Records| {
        r.books.orders.remove(1);
        r.books.rejections.clear();
    };
    assert_eq!(faults(gone), (1, 0, 0));
}

#[test]
fn an_order_without_an_outcome_is_lost() {
    assert_eq!(faults(|r| r.books.rejections.clear()), (1, 0, 0));
    let nobody_asked = |r: &mut Records| {
        r.books.shipments.clear();
        r.bookings.clear();
    };
    assert_eq!(faults(nobody_asked), (1, 0, 0));
}

#[test]
fn a_shipment_that_the_carrier_does_not_know_is_lost() {
    assert_eq!(faults(|r| r.bookings.clear()), (1, 0, 0));
    assert_eq!(faults(|r| r.bookings[0].booking.push('0')), (1, 0, 0));
}

#[test]
fn pending_and_quarantined_are_told_apart() {
    let mut records = good();
    for order in &mut records.books.orders {
        order.2 = "accepted".to_owned();
    }
    records.books.rejections.clear();
    records.quarantined.insert("c-2".to_owned());
    let verdict = judge(&records);
    assert_eq!((verdict.pending, verdict.quarantined), (1, 1));
    assert_eq!((verdict.lost, verdict.shipped), (1, 1));
}

#[test]
fn each_way_of_doubling_counts_its_operation_once() {
    assert_eq!(
        faults(|r| r.bookings.push(booked("c-1", "bk-2"))),
        (0, 1, 0)
    );
    let twice = |r: &mut Records| r.books.shipments.push(r.books.shipments[0].clone());
    assert_eq!(faults(twice), (0, 1, 0));
    let both = |r: &mut Records| {
        r.books.shipments.push(r.books.shipments[0].clone());
        r.bookings.push(booked("c-1", "bk-2"));
    };
    assert_eq!(faults(both), (0, 1, 0));
    let twice = |r: &mut Records| r.books.rejections.push(r.books.rejections[0].clone());
    assert_eq!(faults(twice), (0, 1, 0));
    assert_eq!(
        faults(|r| r.bookings.push(booked("c-2", "bk-2"))),
        (0, 1, 0)
    );
    let two_orders = |r: &mut Records| {
        r.answers.push(answer("c-1", "ord-3", false));
        let order = ("ord-3".to_owned(), "c-1".to_owned(), "shipped".to_owned());
        r.books.orders.push(order);
        let shipment = ("ord-3".to_owned(), "c-1".to_owned(), "bk-1".to_owned());
        r.books.shipments.push(shipment);
    };
    assert_eq!(faults(two_orders), (0, 1, 0));
}

#[test]
fn work_that_nobody_ordered_is_found() {
    assert_eq!(
        faults(|r| r.bookings.push(booked("c-9", "bk-9"))),
        (0, 0, 1)
    );
}
