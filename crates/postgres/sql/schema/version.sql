select coalesce(max(version), 0) as version from onceward.migrations
