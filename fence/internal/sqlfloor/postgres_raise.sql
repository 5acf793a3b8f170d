-- The row stays locked until the transaction ends, also where floor > token.
INSERT INTO fence_floor AS f (resource, floor)
VALUES ($1::text, $3::bigint)
ON CONFLICT (resource) DO UPDATE
SET floor = greatest(f.floor, excluded.floor)
WHERE f.floor <= $2::bigint
