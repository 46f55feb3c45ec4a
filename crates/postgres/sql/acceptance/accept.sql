select a.state, a.answer
from onceward.accept($1::text, $2::text, $3::bytea, $4::bigint, onceward.moment($5::bigint)) a
