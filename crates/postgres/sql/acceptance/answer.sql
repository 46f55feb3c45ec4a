update onceward.acceptances set answer = $4::text
where caller = $1::text and key = $2::text and digest = $3::bytea and answer is null
