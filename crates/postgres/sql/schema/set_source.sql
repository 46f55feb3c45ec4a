update onceward.meta set source = $1::text where source <> $1::text
