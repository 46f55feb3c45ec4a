update onceward.cases set subscription = $2::text where subscription = $1::text
