SELECT coalesce(max(version), 0) FROM onceward_schema
