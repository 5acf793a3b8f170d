package pglock

import (
	"context"
	"fmt"
	"strconv"

	"github.com/fencelock/fencelock/driver"
)

func (in *inspection) version() driver.Finding {
	saw := "PostgreSQL " + in.facts.Text(colVersion)
	if in.facts.Int(colVersionNum) >= 140000 {
		return good("version", saw)
	}
	return bad("version", driver.Broken, saw, "it cannot end the locks of a frozen client, so the engine refuses it",
		"use PostgreSQL 14 or later")
}

func (in *inspection) standby() bool { return in.facts.Text(colStandby) == "t" }

func (in *inspection) role() driver.Finding {
	if !in.standby() {
		return good("role", "a primary")
	}
	return bad("role", driver.Broken, "a hot standby", "its locks exclude nobody on the primary, so the engine refuses it",
		"connect to the primary (target_session_attrs=read-write)")
}

// pooler compares the server process that answered with the one that the
// connection was promised.
func (in *inspection) pooler() driver.Finding {
	if uint32(in.facts.Int(colBackend)) == in.backend {
		return good("pooler", "a direct connection")
	}
	if in.engine.cfg.AllowPooler {
		return bad("pooler", driver.Warning, "a connection pooler, which is allowed",
			"in any but session mode it takes locks away, or gives them to others", "make sure of session mode, or connect to the server directly")
	}
	return bad("pooler", driver.Broken, "a connection pooler",
		"it may take locks away, or give them to others, so the engine refuses it",
		"connect to the server directly, or allow a pooler that is in session mode (AllowPooler, pooler=allow)")
}

func (in *inspection) names() driver.Finding {
	if in.facts.Int(colHash) == hashText(probe) {
		return good("names", "hashed as expected")
	}
	return bad("names", driver.Broken, "hashed differently", "clients would not agree on the key of a name, so the engine refuses the database",
		"use a database in UTF8")
}

func (in *inspection) schema() driver.Finding {
	switch {
	case in.facts.Text(colSchema) == "t":
		return good("schema", "there")
	case in.facts.Text(colMayCreate) == "t":
		return good("schema", "not there yet; the first lock creates it")
	}
	return bad("schema", driver.Broken, "not there, and the role "+in.facts.Text(colUser)+" may not create it", "no lock can be had",
		"let an administrator run the SQL that fencelock init prints")
}

// lease finds out whether the server can be told to end a session that is silent.
func (in *inspection) lease(ctx context.Context) driver.Finding {
	want := strconv.FormatInt(in.ttl.Milliseconds(), 10)
	got, err := in.try(ctx, "idle_session_timeout", want)
	if err == nil && got == want {
		return good("lease", fmt.Sprintf("idle_session_timeout can be set to %v", in.ttl))
	}
	saw := fmt.Sprintf("idle_session_timeout stays at %s ms", got)
	if err != nil {
		saw = "idle_session_timeout cannot be set: " + err.Error()
	}
	return bad("lease", driver.Broken, saw, "the server would keep the locks of a frozen or cut-off client, so the engine refuses it",
		"let the role set idle_session_timeout, and let nothing in between change it")
}

// commits finds out whether what must outlast a crash can be made to: the epoch of
// the tokens, minimum holds and limits.
func (in *inspection) commits(ctx context.Context) driver.Finding {
	const check = "synchronous_commit"
	got, err := in.try(ctx, check, "on")
	if err == nil && got == "on" {
		return good(check, "on, where the engine needs it")
	}
	saw := "stays at " + got
	if err != nil {
		saw = err.Error()
	}
	return bad(check, driver.Broken, saw, "a crash may undo minimum holds, limits and the epoch of fencing tokens, so the engine refuses the server",
		"let the role set synchronous_commit, and let nothing in between change it")
}

// try gives a setting a value in a transaction that is rolled back, since behind a
// pooler the session may be somebody else's, and returns what it was then.
func (in *inspection) try(ctx context.Context, setting, value string) (got string, err error) {
	if err := in.conn.Exec(ctx, "BEGIN").Close(); err != nil {
		return "", err
	}
	defer func() {
		if end := in.conn.Exec(ctx, "ROLLBACK").Close(); err == nil {
			err = end
		}
	}()
	args := [][]byte{[]byte(setting), []byte(value)}
	if _, err := one(in.conn.ExecParams(ctx, "SELECT set_config($1::text, $2::text, true)", args, nil, nil, nil).Read()); err != nil {
		return "", err
	}
	r, err := one(in.conn.ExecParams(ctx, "SELECT setting FROM pg_settings WHERE name = $1::text", args[:1], nil, nil, nil).Read())
	if err != nil {
		return "", err
	}
	return r.Text(0), nil
}

func (in *inspection) durability() driver.Finding {
	fsync, pages := in.facts.Text(colFsync), in.facts.Text(colFullPages)
	saw := fmt.Sprintf("fsync = %s, full_page_writes = %s", fsync, pages)
	if fsync == "on" && pages == "on" {
		return good("durability", saw)
	}
	return bad("durability", driver.Warning, saw, "after a crash of the server's host fencing tokens may come again",
		"set both on")
}
