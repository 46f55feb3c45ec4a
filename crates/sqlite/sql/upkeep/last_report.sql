SELECT tidied_at, report FROM onceward_tidy WHERE only = 1
