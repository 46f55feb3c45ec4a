select to_regclass('onceward.migrations') is not null as is_there
