-- Fails inside a transaction that has failed, whose commit would quietly be a rollback.
select 1
