INSERT INTO onceward_tidy (only, tidied_at, report)
VALUES (1, coalesce(?2, (SELECT micros FROM onceward_clock)), ?1)
ON CONFLICT (only) DO UPDATE SET tidied_at = excluded.tidied_at, report = excluded.report
