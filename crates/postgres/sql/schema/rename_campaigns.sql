update onceward.campaigns set subscription = $2::text where subscription = $1::text
