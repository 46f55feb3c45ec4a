//! Stores that are wrong on purpose.

/// One thing that a store does wrong. A suite, a checker or a verdict that lets any of these pass
/// proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Defect {
    /// A member that was taken over can still begin and commit effects.
    NoFence,
    /// The ledger's key lacks the subscription, so that one suppresses another.
    LedgerWithoutSubscription,
    /// Settling says that everything asked for was inserted.
    CountsAsAsked,
    /// Reading goes by the highest sequence seen and loses what commits late.
    CursorOnSequence,
    /// Rows of a tick come by transaction and not by sequence.
    OrderByTransaction,
    /// A page cut inside a tick goes on one row too far.
    PageSkipsRow,
    /// Settling does not clear deferrals.
    ClearIgnored,
    /// Overwriting a deferral forgets when the message was first deferred.
    FirstTimeForgotten,
    /// A message that is read again and merely held forgets what was known of it.
    HeldOverwrites,
    /// What was marked as running and not begun after all stays marked.
    MarksStay,
    /// A key's deferred messages come in the order of writing.
    DeferralsUnordered,
    /// A position saved under an epoch that is over moves the lane.
    OldEpochHonoured,
    /// Lanes of an owner that died are handed on as if it had left.
    NeverSuspect,
    /// Deaths are not counted.
    DeathsForgotten,
    /// A transaction that is dropped commits.
    DropCommits,
    /// Idempotency keys of different callers meet.
    CallersShareKeys,
    /// Upkeep removes old rows whether or not they were read.
    TidyIgnoresPositions,
    /// Upkeep removes old ledger rows whether or not their messages can come again.
    TidyForgetsByAge,
    /// Acting on a case that is over goes through.
    ActsTwice,
    /// What operators change is not to be seen in a survey.
    RevisionStands,
    /// A released message comes with the budget that it had used.
    ReleasedWithOldBudget,
    /// A released message is not found in its case's copy.
    CopyForgotten,
    /// A released message comes as it was, and not as it was corrected.
    CorrectionForgotten,
    /// A correction that fails takes the place of the original's copy.
    OriginalOverwritten,
    /// A case is removed while the log still has its message.
    PurgesWhatMayCome,
    /// A subscription is removed with messages that are deferred in it.
    RemovesWhatIsLeft,
    /// Ages go on while a subscription is paused.
    PausesCount,
    /// The oldest deferred message is taken to be as old as the last to be deferred.
    BacklogLooksYoung,
    /// Ages go on while a subscription stands still by itself.
    StillCounts,
    /// An operator's pause does not end one that would have ended by itself: both count.
    StillUncut,
    /// An operator's pause does not end one that ended later by a clock that was set back: both count.
    PausesOverlap,
    /// A retry that is due later counts as late.
    FutureIsLate,
    /// A deferral that is gone is not noticed.
    GoneUnseen,
    /// Two campaigns may have one message.
    CampaignsShare,
    /// A rerun is planned although the subscription is not declared repeatable.
    RerunsUndeclared,
    /// What went out is still to go out.
    StepsRepeat,
    /// A stopped campaign keeps what it has left.
    StoppedKeepsItems,
    /// A rerun's message comes under the generation of its first run.
    GenerationForgotten,
    /// Upkeep removes rows that a campaign is still to send out.
    TidyIgnoresCampaigns,
    /// The last version of an aggregate is the one recorded last, and not the highest.
    LastRecordedVersion,
    /// Asked for some versions of an aggregate, a key gives all that is deferred.
    VersionsNotAsked,
    /// Asked for keys beyond limits, it gives those within them too.
    HoldLimitsIgnored,
    /// Where the groups of a lane stand is forgotten.
    GroupsForgotten,
    /// A lane passes for as far as the furthest of its groups.
    FurthestGroupCounts,
    /// What waits is counted from where all groups of a lane are done.
    GroupsCountTogether,
    /// A page of what was given up begins with the last of the page before.
    DroppedPagesOverlap,
    /// When a subscription was paused is not known.
    PausesForgotten,
    /// What was given up at any time counts as given up of late.
    DropsCountForEver,
    /// Asked what was there before a moment, it counts all that waits.
    BeforeCountsAll,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 49] = [
        Self::NoFence,
        Self::LedgerWithoutSubscription,
        Self::CountsAsAsked,
        Self::CursorOnSequence,
        Self::OrderByTransaction,
        Self::PageSkipsRow,
        Self::ClearIgnored,
        Self::FirstTimeForgotten,
        Self::HeldOverwrites,
        Self::MarksStay,
        Self::DeferralsUnordered,
        Self::OldEpochHonoured,
        Self::NeverSuspect,
        Self::DeathsForgotten,
        Self::DropCommits,
        Self::CallersShareKeys,
        Self::TidyIgnoresPositions,
        Self::TidyForgetsByAge,
        Self::ActsTwice,
        Self::RevisionStands,
        Self::ReleasedWithOldBudget,
        Self::CopyForgotten,
        Self::CorrectionForgotten,
        Self::OriginalOverwritten,
        Self::PurgesWhatMayCome,
        Self::RemovesWhatIsLeft,
        Self::PausesCount,
        Self::BacklogLooksYoung,
        Self::StillCounts,
        Self::StillUncut,
        Self::PausesOverlap,
        Self::FutureIsLate,
        Self::GoneUnseen,
        Self::CampaignsShare,
        Self::RerunsUndeclared,
        Self::StepsRepeat,
        Self::StoppedKeepsItems,
        Self::GenerationForgotten,
        Self::TidyIgnoresCampaigns,
        Self::LastRecordedVersion,
        Self::VersionsNotAsked,
        Self::HoldLimitsIgnored,
        Self::GroupsForgotten,
        Self::FurthestGroupCounts,
        Self::GroupsCountTogether,
        Self::DroppedPagesOverlap,
        Self::PausesForgotten,
        Self::DropsCountForEver,
        Self::BeforeCountsAll,
    ];
}
