SELECT floor FROM fence_floor WHERE resource = $1::text
