select case_id, subscription, type, failure from onceward.cases where fingerprint is null
