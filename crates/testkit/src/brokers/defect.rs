//! Brokers that are wrong on purpose.

/// One thing that a broker, or what stands between it and us, does wrong. A suite that lets any of
/// these pass proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BrokerDefect {
    /// A message is confirmed before it is stored, and lost when the broker dies then.
    ConfirmsBeforeStoring,
    /// What becomes of a message is said of the next one in the batch.
    OutcomesShifted,
    /// A message that is too large is confirmed and thrown away.
    SwallowsOversize,
    /// A message that is too large fails the rest of its batch as well.
    OversizeStopsBatch,
    /// A message that nothing takes is confirmed.
    SwallowsUnroutable,
    /// A message under an id that was there a moment ago is another one.
    DedupeForgotten,
    /// Messages of a key come in another order than that of their confirmations.
    ReordersKey,
    /// Attributes come in capital letters.
    AltersAttributes,
    /// What is done comes again.
    DoneComesAgain,
    /// What is to come again never does.
    LosesAgain,
    /// It comes again at once, whatever was asked for.
    IgnoresDelay,
    /// How often a message came is not counted.
    ForgetsCount,
    /// What is handed back stays with whoever handed it back.
    KeepsHandedBack,
    /// What a receiver gives back comes after its time only.
    GivesNothingBack,
    /// What a receiver had when it went is lost.
    LosesUnsettled,
    /// More messages come than were asked for.
    IgnoresMessagesMax,
    /// More bytes come than were asked for.
    IgnoresBytesMax,
    /// More time is granted and not given.
    ExtendsNothing,
    /// A settlement counts for the message received last.
    SettlesAnother,
    /// A foreign message has another identity each time.
    PlacePerDelivery,
}

impl BrokerDefect {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::ConfirmsBeforeStoring,
        Self::OutcomesShifted,
        Self::SwallowsOversize,
        Self::OversizeStopsBatch,
        Self::SwallowsUnroutable,
        Self::DedupeForgotten,
        Self::ReordersKey,
        Self::AltersAttributes,
        Self::DoneComesAgain,
        Self::LosesAgain,
        Self::IgnoresDelay,
        Self::ForgetsCount,
        Self::KeepsHandedBack,
        Self::GivesNothingBack,
        Self::LosesUnsettled,
        Self::IgnoresMessagesMax,
        Self::IgnoresBytesMax,
        Self::ExtendsNothing,
        Self::SettlesAnother,
        Self::PlacePerDelivery,
    ];
}
