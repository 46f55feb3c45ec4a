select s.setting, s.source from pg_catalog.pg_settings s where s.name = 'application_name'
