//go:build unix

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
)

// initCmd is the verb init.
type initCmd struct {
	Print bool // print the SQL instead
	Yes   bool // do not ask for confirmation
}

func newInit(a *App) *cobra.Command {
	c := new(initCmd)
	cmd := &cobra.Command{
		Use: "init [flags]", GroupID: SeeLocks, Short: "Prepare PostgreSQL, or new Redlock servers, for their first lock.",
		Long: `PostgreSQL: creates the schema fencelock. The first lock creates it too if its role has the permission. Otherwise init prints the SQL, which an administrator runs once in the database. It is safe to run init again.

Redlock, and Redis with quarantine=on: declares that the servers are new, so that they grant locks at once. Without init they grant none until every lease that they may have lost has expired. Do this only while nobody can hold a lock on these servers.`,
		Example: `fencelock init --url postgres://app@db.example/app
fencelock init --url postgres:// --print | psql -1 -d app
fencelock init --url redlock://h1,h2,h3 --yes`,
		Args: Arguments(),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	cmd.Flags().BoolVar(&c.Print, "print", false, "Print the SQL of PostgreSQL's schema, and connect to no server.")
	cmd.Flags().BoolVar(&c.Yes, "yes", false, "Do not ask whether somebody can hold a lock on these Redis servers.")
	return cmd
}

// initer is an engine that has to be prepared once. Init may be called again.
type initer interface {
	Init(context.Context) error
}

// Run prepares the engine. An engine that needs no preparation is an error: the caller may expect a
// protection that is not enabled.
func (c *initCmd) Run(a *App) error {
	sql, hasSQL := engineurl.SQL(a.URL)
	switch {
	case c.Print && !hasSQL:
		return Exit(ExitConfig, errors.New("--print needs a postgres:// URL; other engines have no SQL"))
	case c.Print:
		_, err := io.WriteString(a.stdout, sql)
		return err
	}
	return a.with(func(ctx context.Context, engine driver.Engine) error {
		i, ok := engine.(initer)
		target, _ := engineurl.Parse(a.URL) // it has been opened
		redis, isRedis := target.(*engineurl.Redis)
		switch {
		case !ok || isRedis && !redis.Engine.Quarantine:
			return Exit(ExitConfig, fmt.Errorf("%s needs no init (redis:// with quarantine=on does)", engine.Traits().Engine))
		case hasSQL:
			return c.schema(ctx, a, engine, i, sql)
		}
		return c.declare(ctx, a, i)
	})
}

// insufficientPrivilege is the SQLSTATE of a missing permission.
const insufficientPrivilege = "42501"

// schema creates the schema, or prints the SQL if this role may not. If the schema exists and can
// be used, a missing permission to create it is not an error.
func (c *initCmd) schema(ctx context.Context, a *App, engine driver.Engine, i initer, sql string) error {
	err := i.Init(ctx)
	if err == nil {
		a.Say("the schema fencelock is ready")
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != insufficientPrivilege {
		return err
	}
	if _, unusable := fencelock.New(engine, nil).Status(ctx, "any"); unusable == nil {
		a.Say("the schema fencelock exists; nothing was changed, since only its owner may change it")
		return nil
	}
	if _, err := io.WriteString(a.stdout, sql); err != nil {
		return err
	}
	return Exit(ExitConfig, errors.New("this role may not create the schema fencelock; an administrator must run the SQL on stdout"+
		"\ntry: fencelock init --print | psql -1 -U postgres -d DATABASE"))
}

// declare declares servers new, after confirmation: if they are not, two processes may hold one
// lock.
func (c *initCmd) declare(ctx context.Context, a *App, i initer) error {
	if !c.Yes {
		if err := confirm(ctx, a, "If a process holds a lock on these servers, another one can get the same lock now. Is it certain that no process does? [yes/no] "); err != nil {
			return err
		}
	}
	if err := i.Init(ctx); err != nil {
		return err
	}
	a.Say("the servers are declared new and grant locks at once")
	return nil
}

// confirm asks a question on the terminal, and fails if there is none. Only the full word "yes"
// confirms.
func confirm(ctx context.Context, a *App, question string) error {
	f, ok := a.stdin.(*os.File)
	if !ok || !isTTY(f) {
		return Exit(ExitUsage, errors.New("there is no terminal to ask on; write --yes if no process can hold a lock on these servers"))
	}
	fmt.Fprint(a.Stderr, question)
	said := make(chan bool, 1)
	go func() { // ends with the answer, or with the process
		answer, err := bufio.NewReader(f).ReadString('\n')
		said <- err == nil && strings.TrimSpace(answer) == "yes"
	}()
	select {
	case yes := <-said:
		if yes {
			return nil
		}
		return Exit(ExitUsage, errors.New("nothing was changed"))
	case <-ctx.Done():
		return ctx.Err()
	}
}
