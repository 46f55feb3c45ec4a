-- What stands still without an operator's word, because a breaker is open or the other side asked to
-- be left alone, is a pause that ends by itself unless it is said again. And a limit of starts per
-- second.

ALTER TABLE onceward_pause ADD COLUMN because TEXT CHECK (because IN ('breaker', 'rate-window'));
ALTER TABLE onceward_pause ADD COLUMN until_at INTEGER;

ALTER TABLE onceward_subscription ADD COLUMN rate_per_second INTEGER CHECK (rate_per_second > 0);
ALTER TABLE onceward_subscription ADD COLUMN rate_burst INTEGER CHECK (rate_burst > 0);
