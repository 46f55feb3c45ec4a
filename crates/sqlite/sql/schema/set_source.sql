-- A source that was set by hand replaces an earlier one.
INSERT INTO onceward_meta (only, source) VALUES (1, ?1)
ON CONFLICT (only) DO UPDATE SET source = excluded.source
WHERE ?2 AND source <> excluded.source
