//! Replay campaigns where PostgreSQL is particular: rights.

use onceward_core::Position;
use onceward_core::campaign::{CampaignAction, CampaignKind, CampaignState, Pacing};
use onceward_core::store::{
    ActOnCampaign, Actor, Campaign, HistoryQuery, Operate as _, PlanCampaign, Replay as _,
    Selection, Source, Start, StepCampaign, StoreErrorKind,
};
use onceward_postgres::grants_sql;

use crate::operate::{as_role, open_case};
use crate::support::{SUB, append, envelope, execute, read, register, session, store};

const BY: Actor<'static> = Actor {
    who: "ada",
    why: Some("tested"),
};

/// An operator plans, starts and stops; a worker takes it on and can do nothing else of that.
#[tokio::test]
async fn a_worker_takes_campaigns_on_and_plans_none() {
    let (database, owner) = store().await;
    let mut connection = session(&database).await;
    execute(&mut connection, grants_sql()).await;
    register(&owner, Start::Earliest).await;
    append(&owner, &["k1", "k2"].map(|key| envelope(key, key))).await;
    let (rows, _) = read(&owner, &Position::origin(1), 10).await;
    for row in &rows {
        open_case(&owner, row).await;
    }
    let operator = as_role(&database, "onceward_operator").await;
    let worker = as_role(&database, "onceward_worker").await;
    let plan = PlanCampaign {
        subscription: SUB,
        kind: CampaignKind::Resend,
        selection: &Selection::of(Source::Cases),
        pacing: Pacing {
            canary: 1,
            ..Pacing::default()
        },
        accept: &[],
        items_max: 0,
        by: BY,
    };
    let denied = worker.plan_campaign(plan).await.unwrap_err();
    assert_eq!(denied.kind(), StoreErrorKind::Denied);
    let Campaign { campaign_id, .. } = operator.plan_campaign(plan).await.unwrap();
    let act = |action| ActOnCampaign {
        campaign_id,
        action,
        by: BY,
    };
    let start = act(CampaignAction::Start { approved_by: None });
    let denied = worker.act_on_campaign(start).await.unwrap_err();
    assert_eq!(denied.kind(), StoreErrorKind::Denied);
    operator.act_on_campaign(start).await.unwrap();
    let stepped = worker.step_campaign(StepCampaign { campaign_id }).await;
    assert_eq!(stepped.unwrap().started, 1);
    let stop = act(CampaignAction::Stop);
    let stopped = operator.act_on_campaign(stop).await.unwrap();
    assert_eq!(stopped.standing.state, CampaignState::Stopped);
    let auditor = as_role(&database, "onceward_auditor").await;
    let history = auditor.history(HistoryQuery::default()).await.unwrap();
    let seen: Vec<_> = history
        .iter()
        .map(|entry| (entry.action.as_str(), entry.who.as_str()))
        .collect();
    let expected = ["replay-plan", "replay-start", "release", "replay-stop"];
    assert_eq!(seen, expected.map(|action| (action, "ada")));
}
