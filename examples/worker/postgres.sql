CREATE TABLE worker_task (
	id     bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	length interval NOT NULL,
	taken  boolean  NOT NULL DEFAULT false, -- given out, and not put back
	tries  int      NOT NULL DEFAULT 0,     -- how often it was begun
	token  bigint   NOT NULL DEFAULT 0,     -- the greatest that was here
	done   boolean  NOT NULL DEFAULT false
);

-- Nothing here keeps a task from having two results: the guard does.
CREATE TABLE worker_result (
	task   bigint NOT NULL REFERENCES worker_task,
	token  bigint NOT NULL,
	result text   NOT NULL
);
