-- Where an item is now. What goes out has a beginning, everything else an end.
UPDATE onceward_campaign_item
SET state = ?3, finding = coalesce(?4, finding), note = coalesce(?5, note),
    started_at = CASE WHEN ?3 = 'running'
        THEN coalesce(?6, (SELECT micros FROM onceward_clock)) ELSE started_at END,
    ended_at = CASE WHEN ?3 <> 'running'
        THEN coalesce(?6, (SELECT micros FROM onceward_clock)) END
WHERE campaign_id = ?1 AND seq = ?2
