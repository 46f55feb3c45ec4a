//! Lane groups: each stands where it has come to, and what any of them needs stays.

use std::collections::BTreeMap;

use onceward_core::group::{Grouping, Groups, Priority, Tenants};
use onceward_core::store::{
    BacklogQuery, Declared, GroupBacklog, Lease, MessageState, OperationQuery, Release,
    ReleasedLane, SavePosition, Span, Start, Store, StoreError, TakenLane, Terms,
};
use onceward_core::{Envelope, Position, Stand};

use super::seams::*;
use super::steps::{
    LANES, LEASE_MS, SUB, TYPE, append, append_rows, join, message, message_of, messages, origin,
    read_all, register, take,
};
use super::upkeep::tidy_all;
use super::{CaseResult, Fixture};

/// A type of another class than the one of most cases.
const URGENT: &str = "order.urgent";

fn grouping(tenants: Option<u8>) -> Grouping {
    let types = [(TYPE, Priority::Low), (URGENT, Priority::High)];
    Grouping {
        types: types.iter().map(|(t, p)| ((*t).to_owned(), *p)).collect(),
        tenants: tenants.map(|groups| Tenants {
            attribute: "tenant".to_owned(),
            groups,
        }),
    }
}

async fn register_grouped<S: Store>(store: &S, tenants: Option<u8>) -> Result<(), StoreError> {
    let types = [TYPE.to_owned(), URGENT.to_owned()];
    let declared = Declared {
        subscription: SUB,
        lanes: LANES,
        types: &types,
        start: Some(Start::Earliest),
        renamed_from: None,
        terms: Terms {
            grouping: Some(grouping(tenants)),
            ..Terms::default()
        },
    };
    store.register(declared).await?;
    Ok(())
}

/// Where the class of [`TYPE`] is behind the other.
fn apart(lowest: &Position, others: &[(&str, &Position)]) -> Stand {
    let groups = others
        .iter()
        .map(|(name, at)| ((*name).to_owned(), (*at).clone()));
    Stand {
        position: lowest.clone(),
        groups: groups.collect(),
    }
}

async fn save_stand<S: Store>(
    store: &S,
    lease: &Lease,
    stand: &Stand,
    taken: &[TakenLane],
) -> Result<(), StoreError> {
    let span = Span {
        stand: stand.clone(),
        lanes: taken.iter().map(|lane| (lane.lane, lane.epoch)).collect(),
    };
    let request = SavePosition {
        member: &lease.member,
        subscription: SUB,
        spans: &[span],
    };
    store.save_position(request).await
}

async fn take_all<S: Store>(store: &S, lease: &Lease) -> Result<Vec<TakenLane>, StoreError> {
    take(store, lease, &(0..LANES).collect::<Vec<_>>()).await
}

fn stands(taken: &[TakenLane]) -> Vec<&Stand> {
    taken.iter().map(|lane| &lane.stand).collect()
}

/// By an end in good order, by handing back, and by an end without a word.
pub async fn groups_are_handed_on_where_each_stood<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register(store, SUB).await?;
    append(store, &messages(1, 1)).await?;
    let low = store.head().await?;
    append(store, &messages(2, 3)).await?;
    let high = store.head().await?;
    let inside = low.reach(&high.after, 2);
    let stand = apart(&low, &[("high", &high), ("normal", &inside)]);

    let a = join(store, "a").await?;
    let mine = take_all(store, &a).await?;
    save_stand(store, &a, &stand, &mine).await?;
    store.leave(&a).await?;
    let b = join(store, "b").await?;
    let taken = take_all(store, &b).await?;
    assert_eq!(stands(&taken), vec![&stand; usize::from(LANES)], "left");

    let further = apart(&inside, &[("high", &high), ("new", &high)]);
    let released: Vec<ReleasedLane> = taken
        .iter()
        .map(|lane| ReleasedLane {
            lane: lane.lane,
            epoch: lane.epoch,
            stand: further.clone(),
        })
        .collect();
    let release = Release {
        lease: &b,
        subscription: SUB,
        lanes: &released,
    };
    store.release(release).await?;
    let c = join(store, "c").await?;
    let taken = take_all(store, &c).await?;
    assert_eq!(
        stands(&taken),
        vec![&further; usize::from(LANES)],
        "handed back"
    );

    let last = apart(&high, &[]);
    save_stand(store, &c, &stand, &taken).await?;
    save_stand(store, &c, &last, &taken[1..]).await?;
    save_stand(store, &c, &stand, &taken[..1]).await?;
    fixture.advance_ms(LEASE_MS + 1_000);
    let d = join(&fixture.second().await, "d").await?;
    let taken = take_all(store, &d).await?;
    assert_eq!(taken[0].stand, stand, "lapsed");
    Ok(())
}

/// The furthest of them says nothing of the others.
pub async fn what_any_group_needs_stays<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register_grouped(store, None).await?;
    let rows = append_rows(store, &messages(1, 5)).await?;
    let start = origin(store).await?;
    let groups = Groups::new(&grouping(None));
    let lease = join(store, "a").await?;
    let taken = take_all(store, &lease).await?;
    let stand = apart(&start, &[(groups.name(0), &store.head().await?)]);
    save_stand(store, &lease, &stand, &taken).await?;
    store.leave(&lease).await?;
    fixture.advance_ms(400 * 86_400_000);
    tidy_all(store).await?;
    assert_eq!(read_all(store, &start, 10).await?.0, rows);
    Ok(())
}

/// A message is behind its own group's position.
pub async fn a_message_stands_with_its_group<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register_grouped(store, None).await?;
    append(
        store,
        &[message("low", "a"), message_of(URGENT, "high", "b")],
    )
    .await?;
    let groups = Groups::new(&grouping(None));
    let lease = join(store, "a").await?;
    let taken = take_all(store, &lease).await?;
    let start = taken[0].stand.position.clone();
    let stand = apart(&start, &[(groups.name(0), &store.head().await?)]);
    save_stand(store, &lease, &stand, &taken).await?;
    let state = async |operation| {
        let query = OperationQuery {
            operation,
            rows_max: 1,
        };
        let mut found = store.operation(query).await?;
        Ok::<_, StoreError>(found.remove(0).subscriptions.remove(0).1)
    };
    assert_eq!(state("high").await?, MessageState::Delivered);
    assert_eq!(state("low").await?, MessageState::Pending);
    Ok(())
}

fn of_tenant(tenant: &str, mut envelope: Envelope) -> Envelope {
    let named = ("tenant".to_owned(), tenant.to_owned());
    envelope.attributes.extend([named]);
    envelope
}

/// Each from where it stands, with its own oldest.
pub async fn the_backlog_counts_by_group<F: Fixture>(fixture: &F) -> CaseResult {
    let store = fixture.store();
    register_grouped(store, Some(2)).await?;
    // Of two groups these fall into different ones.
    let groups = Groups::new(&grouping(Some(2)));
    let tenant = |name: &str| BTreeMap::from([("tenant".to_owned(), name.to_owned())]);
    let first = groups.of_message(TYPE, &tenant("a"));
    assert_ne!(first, groups.of_message(TYPE, &tenant("b")));
    let sent = [
        of_tenant("a", message("m1", "a1")),
        of_tenant("b", message("m2", "b1")),
        of_tenant("a", message_of(URGENT, "m3", "c1")),
    ];
    let rows = append_rows(store, &sent).await?;
    let lease = join(store, "a").await?;
    let taken = take_all(store, &lease).await?;
    let start = taken[0].stand.position.clone();
    let name = groups.name(first.unwrap_or_default());
    let stand = apart(&start, &[(name, &store.head().await?)]);
    save_stand(store, &lease, &stand, &taken).await?;
    let more = [
        of_tenant("a", message("m4", "a2")),
        of_tenant("b", message("m5", "b2")),
    ];
    let later = append_rows(store, &more).await?;
    let query = |count_max| BacklogQuery {
        subscription: SUB,
        count_max,
        before: None,
    };
    let backlog = store.backlog(query(100)).await?;
    assert_eq!(
        (backlog.waiting, backlog.waiting_is_lower_bound),
        (4, false)
    );
    assert_eq!(backlog.oldest_waiting_at, Some(rows[1].recorded_at));
    let of = |found: &GroupBacklog| (found.priority, found.waiting, found.oldest_waiting_at);
    let mut found: Vec<_> = backlog.groups.iter().map(of).collect();
    found.sort_unstable();
    let mut expected = [
        (Priority::High, 0, None),
        (Priority::High, 1, Some(rows[2].recorded_at)),
        (Priority::Low, 1, Some(later[0].recorded_at)),
        (Priority::Low, 2, Some(rows[1].recorded_at)),
    ];
    expected.sort_unstable();
    assert_eq!(found, expected);
    let shares: Vec<_> = backlog.groups.iter().map(|group| group.tenants).collect();
    assert_eq!(shares, [Some(0), Some(1), Some(0), Some(1)]);
    // No more than asked for.
    let part = store.backlog(query(2)).await?;
    assert!(part.waiting_is_lower_bound && part.waiting <= 2, "{part:?}");
    Ok(())
}
