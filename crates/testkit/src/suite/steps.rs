//! Steps that cases are made of.

use onceward_core::store::{
    Begin, Declared, Deferral, DeferralKind, DeferredRow, End, HeldKey, HeldKeysQuery, Join, Lease,
    LoadKey, NewCase, Page, ReadPage, Registered, Release, ReleasedLane, SavePosition, Settle,
    Settled, Span, Start, Store, StoreError, StoreErrorKind, Take, TakenLane,
};
use onceward_core::{
    Class, Ending, Envelope, FailureRecord, Identity, LedgerEntry, LedgerKey, Payload, Position,
    Row, Spent,
};

/// The message type of most cases.
pub(super) const TYPE: &str = "order.accepted";

/// The subscription of most cases.
pub(super) const SUB: &str = "fulfilment";

/// Lanes of a subscription in these cases.
pub(super) const LANES: u16 = 4;

/// All slots.
pub(super) const ALL_SLOTS: (u16, u16) = (0, onceward_core::lane::SLOTS - 1);

/// Length of a lease: long enough that no real clock ends it during a case.
pub(super) const LEASE_MS: u64 = 60_000;

/// A message with a JSON payload that names it.
pub(super) fn message(id: &str, key: &str) -> Envelope {
    message_of(TYPE, id, key)
}

/// The same of another type.
pub(super) fn message_of(message_type: &str, id: &str, key: &str) -> Envelope {
    let payload = Payload::Json(format!("{{\"id\": \"{id}\"}}").into());
    Envelope::new(id, "order", key, message_type, payload)
}

/// Messages `first..=last`, each its own key.
pub(super) fn messages(first: u32, last: u32) -> Vec<Envelope> {
    (first..=last)
        .map(|i| message(&format!("m{i}"), &format!("k{i}")))
        .collect()
}

/// The ids of rows, in their order.
pub(super) fn ids(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.envelope.id.as_str()).collect()
}

/// Opens a transaction outside lanes.
pub(super) async fn open<S: Store>(store: &S) -> Result<S::Tx, StoreError> {
    store.begin(Begin { lease: None }).await
}

/// Appends in an open transaction.
pub(super) async fn append_in<S: Store>(
    store: &S,
    tx: &mut S::Tx,
    envelopes: &[Envelope],
) -> Result<(), StoreError> {
    store.append(store.connection(tx), envelopes).await
}

/// Appends in a transaction of its own.
pub(super) async fn append<S: Store>(store: &S, envelopes: &[Envelope]) -> Result<(), StoreError> {
    let mut tx = open(store).await?;
    append_in(store, &mut tx, envelopes).await?;
    store.end(tx, End::Commit).await
}

/// Appends and reads back what the log made of it, in the order of the log.
pub(super) async fn append_rows<S: Store>(
    store: &S,
    envelopes: &[Envelope],
) -> Result<Vec<Row>, StoreError> {
    let head = store.head().await?;
    append(store, envelopes).await?;
    let (rows, _) = read_all(store, &head, 1_000).await?;
    assert_eq!(
        rows.len(),
        envelopes.len(),
        "rows read of what was appended"
    );
    Ok(rows)
}

/// Before the first row of the store's era.
pub(super) async fn origin<S: Store>(store: &S) -> Result<Position, StoreError> {
    Ok(Position::origin(store.head().await?.era))
}

/// One page.
pub(super) async fn read<S: Store>(
    store: &S,
    from: &Position,
    rows_max: u32,
) -> Result<Page, StoreError> {
    let bytes_max = u64::MAX;
    let page = store
        .read(ReadPage {
            from,
            rows_max,
            bytes_max,
        })
        .await?;
    assert!(
        page.rows.len() <= rows_max as usize,
        "more rows than asked for"
    );
    Ok(page)
}

/// Pages of `rows_max` rows up to the end of the tick, and where that is.
pub(super) async fn read_all<S: Store>(
    store: &S,
    from: &Position,
    rows_max: u32,
) -> Result<(Vec<Row>, Position), StoreError> {
    let mut rows = Vec::new();
    let mut at = from.clone();
    for _ in 0..10_000 {
        let page = read(store, &at, rows_max).await?;
        rows.extend(page.rows);
        at = page.next;
        if at.is_boundary() {
            return Ok((rows, at));
        }
    }
    panic!("the tick had no end within ten thousand pages");
}

/// Declares a subscription to [`TYPE`] from the log's beginning.
pub(super) async fn register<S: Store>(store: &S, subscription: &str) -> Result<(), StoreError> {
    let found = declare(store, subscription, &[TYPE], Some(Start::Earliest)).await?;
    assert_eq!(
        found,
        Registered::New,
        "a subscription nobody declared before"
    );
    Ok(())
}

/// Declares a subscription.
pub(super) async fn declare<S: Store>(
    store: &S,
    subscription: &str,
    types: &[&str],
    start: Option<Start>,
) -> Result<Registered, StoreError> {
    let types: Vec<String> = types.iter().map(|t| (*t).to_owned()).collect();
    store
        .register(Declared {
            subscription,
            lanes: LANES,
            types: &types,
            start,
            renamed_from: None,
            terms: onceward_core::store::Terms::default(),
        })
        .await
}

/// Joins for [`SUB`].
pub(super) async fn join<S: Store>(store: &S, member: &str) -> Result<Lease, StoreError> {
    store
        .join(Join {
            member,
            description: &format!("{member} on this host"),
            lease_ms: LEASE_MS,
            subscriptions: &[SUB.to_owned()],
        })
        .await
}

/// Takes lanes of [`SUB`].
pub(super) async fn take<S: Store>(
    store: &S,
    lease: &Lease,
    lanes: &[u16],
) -> Result<Vec<TakenLane>, StoreError> {
    take_of(store, lease, SUB, lanes).await
}

/// Takes lanes of a subscription, returned by number.
pub(super) async fn take_of<S: Store>(
    store: &S,
    lease: &Lease,
    subscription: &str,
    lanes: &[u16],
) -> Result<Vec<TakenLane>, StoreError> {
    let request = Take {
        lease,
        subscription,
        lanes,
    };
    let mut taken = store.take(request).await?;
    taken.sort_by_key(|lane| lane.lane);
    Ok(taken)
}

/// Takes one lane of [`SUB`] that must be there to take.
pub(super) async fn take_one<S: Store>(
    store: &S,
    lease: &Lease,
    lane: u16,
) -> Result<TakenLane, StoreError> {
    let mut taken = take(store, lease, &[lane]).await?;
    assert_eq!(taken.len(), 1, "lane {lane} was there to take");
    Ok(taken.remove(0))
}

/// Saves one position for lanes of [`SUB`], each with its epoch.
pub(super) async fn save<S: Store>(
    store: &S,
    lease: &Lease,
    position: &Position,
    lanes: &[(u16, u64)],
) -> Result<(), StoreError> {
    let span = Span {
        stand: position.clone().into(),
        lanes: lanes.to_vec(),
    };
    store
        .save_position(SavePosition {
            member: &lease.member,
            subscription: SUB,
            spans: &[span],
        })
        .await
}

/// Hands one lane of [`SUB`] back.
pub(super) async fn release<S: Store>(
    store: &S,
    lease: &Lease,
    lane: &TakenLane,
    position: &Position,
) -> Result<(), StoreError> {
    let lanes = [ReleasedLane {
        lane: lane.lane,
        epoch: lane.epoch,
        stand: position.clone().into(),
    }];
    store
        .release(Release {
            lease,
            subscription: SUB,
            lanes: &lanes,
        })
        .await
}

/// Settles in a transaction of its own.
pub(super) async fn settle<S: Store>(store: &S, settle: Settle<'_>) -> Result<Settled, StoreError> {
    let mut tx = open(store).await?;
    let settled = store.settle(&mut tx, settle).await?;
    store.end(tx, End::Commit).await?;
    Ok(settled)
}

/// Settling nothing yet for [`SUB`] under the message identity.
pub(super) const fn nothing() -> Settle<'static> {
    Settle::nothing(SUB, Identity::Message)
}

/// Writes deferrals of [`SUB`].
pub(super) async fn defer<S: Store>(store: &S, defer: &[Deferral]) -> Result<(), StoreError> {
    let request = Settle {
        defer,
        ..Settle::nothing(SUB, Identity::Message)
    };
    settle(store, request).await.map(|_| ())
}

/// Inserts ledger entries of [`SUB`] and returns how many were new.
pub(super) async fn record<S: Store>(
    store: &S,
    identity: Identity,
    ledger: &[LedgerEntry],
) -> Result<u64, StoreError> {
    let request = Settle {
        ledger,
        ..Settle::nothing(SUB, identity)
    };
    settle(store, request)
        .await
        .map(|settled| settled.ledger_rows)
}

/// What the ledger of a subscription has.
pub(super) async fn known<S: Store>(
    store: &S,
    subscription: &str,
    identity: Identity,
    keys: &[LedgerKey],
) -> Result<Vec<Option<LedgerEntry>>, StoreError> {
    let mut tx = open(store).await?;
    let request = onceward_core::store::Known {
        subscription,
        identity,
        keys,
        deferred: &[],
    };
    let found = store.known(&mut tx, request).await?.entries;
    store.end(tx, End::RollBack).await?;
    assert_eq!(found.len(), keys.len(), "one answer for each key");
    Ok(found)
}

/// Which of the sequences have no deferral.
pub(super) async fn gone<S: Store>(
    store: &S,
    subscription: &str,
    deferred: &[u64],
) -> Result<Vec<u64>, StoreError> {
    let mut tx = open(store).await?;
    let request = onceward_core::store::Known {
        subscription,
        identity: Identity::Message,
        keys: &[],
        deferred,
    };
    let found = store.known(&mut tx, request).await?;
    store.end(tx, End::RollBack).await?;
    Ok(found.gone)
}

/// A ledger entry of a row that went well.
pub(super) fn entry(row: &Row, identity: Identity) -> LedgerEntry {
    LedgerEntry {
        key: LedgerKey::of(row, identity),
        digest: Some(*b"0123456789abcdef"),
        ending: Ending::Done,
        result: Some("{\"shipped\": true}".into()),
        aggregate_version: None,
        aggregate: None,
    }
}

/// A deferral of a row.
pub(super) fn deferral(row: &Row, kind: DeferralKind, due_in_ms: Option<u64>) -> Deferral {
    Deferral {
        seq: row.seq,
        slot: row.slot,
        key: row.envelope.key().to_owned(),
        kind,
        due_in_ms,
        spent: Spent::default(),
        failure: None,
    }
}

/// A case of a row.
pub(super) fn case(row: &Row, reason: &str) -> NewCase {
    NewCase {
        key: row.envelope.key().to_owned(),
        row: row.clone(),
        reason: reason.to_owned(),
        failure: failure(Class::Permanent),
        spent: Spent {
            failures: 1,
            ..Spent::default()
        },
        holds_key: true,
    }
}

/// A failure with every field set.
pub(super) fn failure(class: Class) -> FailureRecord {
    FailureRecord {
        class,
        code: "address_unknown".to_owned(),
        message: "the carrier does not know the address".to_owned(),
        detail: Some("line 1\nline 2: \u{e9}".to_owned()),
    }
}

/// The deferred messages of a row's key in [`SUB`].
pub(super) async fn load<S: Store>(store: &S, row: &Row) -> Result<Vec<DeferredRow>, StoreError> {
    store
        .load_key(LoadKey {
            subscription: SUB,
            slot: row.slot,
            key: row.envelope.key(),
            after_seq: 0,
            versions_to: None,
            rows_max: 100,
        })
        .await
}

/// The keys of [`SUB`] with deferred messages, by key.
pub(super) async fn held<S: Store>(
    store: &S,
    slots: (u16, u16),
) -> Result<Vec<HeldKey>, StoreError> {
    let query = HeldKeysQuery {
        subscription: SUB,
        slots,
    };
    let mut keys = store.held_keys(query).await?;
    keys.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(keys)
}

/// Asserts that a store refused with a kind.
pub(super) fn assert_refused<T>(
    ended: Result<T, StoreError>,
    kind: StoreErrorKind,
    what: &str,
) -> Result<(), StoreError> {
    match ended {
        Ok(_) => panic!("{what} went through, and should be refused as {kind:?}"),
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(error),
    }
}
