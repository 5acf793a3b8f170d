-- Two stays in one room must not overlap. A primary key cannot express that, so the program
-- ensures it with a lock and a fencing token. (An exclusion constraint on a range type could
-- express it. Use one where you can, in addition.)
CREATE TABLE IF NOT EXISTS booking (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	room     text NOT NULL,
	guest    text NOT NULL,
	from_day date NOT NULL,
	to_day   date NOT NULL CHECK (from_day < to_day)
);
CREATE INDEX IF NOT EXISTS booking_room ON booking (room, from_day);
