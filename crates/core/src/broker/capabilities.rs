//! What a broker can do, as data.

/// What stays in order on the way through a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Nothing.
    None,
    /// What one publisher sends to one topic, as long as nothing is delivered again and one
    /// receiver takes it: a message that comes again comes late.
    UntilRedelivery,
    /// What one publisher sends under one key, redeliveries included.
    Key,
}

/// What a broker says of how often it delivered a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryCount {
    /// Nothing.
    None,
    /// Only that it was delivered before.
    Redelivered,
    /// The number of deliveries, this one included.
    Exact,
}

/// What a broker can do. Configuration that asks for more is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What stays in order.
    pub order: KeyOrder,
    /// For how long a message that is published again under its id is taken for the same, in
    /// milliseconds; none where that is never noticed.
    pub dedupe_window_ms: Option<u64>,
    /// Largest message in bytes, headers included; none where it is not known before.
    pub message_bytes_max: Option<u64>,
    /// Longest time after which a message can be asked for again, in milliseconds; none where it
    /// comes at once.
    pub delay_ms_max: Option<u64>,
    /// Whether a receiver can ask for more time for a message that it has.
    pub can_extend: bool,
    /// Whether several messages can be published as one.
    pub has_transactions: bool,
    /// What is said of earlier deliveries.
    pub delivery_count: DeliveryCount,
    /// Whether publishing to a topic that nothing takes is told.
    pub tells_unroutable: bool,
    /// Whether a message has a place of its own (a partition and offset, a stream and sequence),
    /// the same on every delivery: the identity of messages that bring none.
    pub has_coordinates: bool,
}

impl Capabilities {
    /// Whether a receiver can wait as long as this before a message comes again.
    #[must_use]
    pub fn can_delay(&self, delay_ms: u64) -> bool {
        self.delay_ms_max.is_some_and(|max| delay_ms <= max)
    }

    /// Whether a message of this many bytes, headers included, can be published as far as that is
    /// known before.
    #[must_use]
    pub fn can_carry(&self, bytes: u64) -> bool {
        self.message_bytes_max.is_none_or(|max| bytes <= max)
    }

    /// Row of the table in the guide, as Markdown.
    #[must_use]
    pub fn table_row(&self, broker: &str) -> String {
        let order = match self.order {
            KeyOrder::None => "none",
            KeyOrder::UntilRedelivery => "until a redelivery",
            KeyOrder::Key => "per key",
        };
        let count = match self.delivery_count {
            DeliveryCount::None => "no",
            DeliveryCount::Redelivered => "first or not",
            DeliveryCount::Exact => "yes",
        };
        let size = |bytes: u64| format!("{} KiB", bytes / 1024);
        let time = |ms: u64| match ms {
            u64::MAX => "any".to_owned(),
            0..60_000 => format!("{} s", ms / 1_000),
            60_000..7_200_000 => format!("{} min", ms / 60_000),
            7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
            _ => format!("{} days", ms / 86_400_000),
        };
        let or = |text: Option<String>, none: &str| text.unwrap_or_else(|| none.to_owned());
        let yes = |is: bool| if is { "yes" } else { "no" };
        format!(
            "| {broker} | {order} | {} | {} | {} | {} | {} | {count} | {} | {} |",
            or(self.dedupe_window_ms.map(time), "no"),
            or(self.message_bytes_max.map(size), "the server's"),
            or(self.delay_ms_max.map(time), "no"),
            yes(self.can_extend),
            yes(self.has_transactions),
            yes(self.tells_unroutable),
            yes(self.has_coordinates),
        )
    }

    /// Head of that table.
    pub const TABLE_HEAD: &str = "\
        | broker | order | dedupe window | largest message | longest delay | extend | \
        transactions | delivery count | tells unroutable | coordinates |\n\
        |---|---|---|---|---|---|---|---|---|---|";
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Capabilities = Capabilities {
        order: KeyOrder::Key,
        dedupe_window_ms: Some(120_000),
        message_bytes_max: Some(1 << 20),
        delay_ms_max: None,
        can_extend: true,
        has_transactions: false,
        delivery_count: DeliveryCount::Exact,
        tells_unroutable: true,
        has_coordinates: false,
    };

    #[test]
    fn a_row_has_as_many_cells_as_the_head() {
        let head = Capabilities::TABLE_HEAD.lines().next().unwrap();
        let row = SOME.table_row("some");
        assert_eq!(row.matches('|').count(), head.matches('|').count(), "{row}");
        assert_eq!(
            row,
            "| some | per key | 2 min | 1024 KiB | no | yes | no | yes | yes | no |"
        );
    }

    #[test]
    fn limits_are_the_last_that_goes() {
        assert!(SOME.can_carry(1 << 20) && !SOME.can_carry((1 << 20) + 1));
        assert!(!SOME.can_delay(0));
        let delays = Capabilities {
            delay_ms_max: Some(5),
            message_bytes_max: None,
            ..SOME
        };
        assert!(delays.can_delay(5) && !delays.can_delay(6) && delays.can_carry(u64::MAX));
    }
}
