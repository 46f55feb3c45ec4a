-- One row with the five columns that are enough, as any client may write it:
--   psql URL -v ON_ERROR_STOP=1 -v id=psql-1 -v aggregate=ord-731 -f insert.sql
INSERT INTO onceward.outbox (id, aggregatetype, aggregateid, type, payload)
VALUES (:'id', 'order', :'aggregate', 'order.accepted',
        '{"from": "psql", "n": 9007199254740993, "n": -0.10}');
