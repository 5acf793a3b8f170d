-- The row stays locked until the transaction ends. A stale token's floor changes nothing.
INSERT INTO fence_floor (resource, floor)
VALUES (UNHEX(?), ?)
ON DUPLICATE KEY UPDATE floor = GREATEST(floor, ?)
