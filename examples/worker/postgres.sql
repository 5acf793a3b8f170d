-- Workers that start together make the tables one after the other.
SELECT pg_advisory_xact_lock(hashtext('worker_task'));

CREATE TABLE IF NOT EXISTS worker_task (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	length_us bigint  NOT NULL,
	taken     boolean NOT NULL DEFAULT false, -- given out, and not put back
	tries     int     NOT NULL DEFAULT 0,
	token     bigint  NOT NULL DEFAULT 0,     -- the greatest that was here
	done      boolean NOT NULL DEFAULT false
);

-- Nothing here keeps a task from having two results: the guard does.
CREATE TABLE IF NOT EXISTS worker_result (
	task   bigint NOT NULL REFERENCES worker_task,
	token  bigint NOT NULL,
	worker text   NOT NULL,
	result text   NOT NULL
);
