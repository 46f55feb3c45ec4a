update onceward.subscriptions set types = $2::text[], terms = $3::text
where subscription = $1::text
  and (types is distinct from $2::text[] or terms is distinct from $3::text)
