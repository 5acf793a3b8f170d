CREATE TABLE IF NOT EXISTS fence_floor (
    resource text COLLATE "C" PRIMARY KEY,
    floor    bigint NOT NULL
)
