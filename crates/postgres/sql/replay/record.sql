select onceward.record_of_campaign(
    $9::bigint, onceward.moment($1::bigint), $2::text, $3::text, $4::text, $5::bigint, $6::text,
    $7::text::json, $8::text::json)
