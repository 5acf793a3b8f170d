CREATE TABLE worker_task (
	id     bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	length interval NOT NULL,
	taken  boolean  NOT NULL DEFAULT false, -- taken by a worker and not put back
	tries  int      NOT NULL DEFAULT 0,     -- how many times it was begun
	token  bigint   NOT NULL DEFAULT 0,     -- the greatest token so far
	done   boolean  NOT NULL DEFAULT false
);

-- The tables do not prevent two results for a task. The guard does.
CREATE TABLE worker_result (
	task   bigint NOT NULL REFERENCES worker_task,
	token  bigint NOT NULL,
	result text   NOT NULL
);
