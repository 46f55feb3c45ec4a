SELECT case_id, subscription, type, failure FROM onceward_case WHERE fingerprint IS NULL
