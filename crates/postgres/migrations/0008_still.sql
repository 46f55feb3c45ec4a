-- What stands still without an operator's word, because a breaker is open or the other side asked to
-- be left alone, is a pause that ends by itself unless it is said again. And a limit of starts per
-- second.

alter table onceward.pauses
    add column because text check (because in ('breaker', 'rate-window')),
    add column until_at timestamptz,
    add constraint pauses_end_by_themselves check (because is null or resumed_at is not null);

alter table onceward.subscriptions
    add column rate_per_second bigint check (rate_per_second > 0),
    add column rate_burst bigint check (rate_burst > 0);
