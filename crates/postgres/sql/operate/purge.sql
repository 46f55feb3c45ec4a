with corrected as (
    delete from onceward.corrections where case_id = $1::bigint)
delete from onceward.cases where case_id = $1::bigint
