package vectors

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// functions says what the words of an answer are, by the function, or by the first word.
var functions = map[string]string{
	"register": "session ms", "join": "ticket literal", "beat": "backend", "extend": "backend", "take_rate": "word at",
	"ok": "word token token", "left": "word ms", "closed": "word ms", "full": "word ms",
}

var function = regexp.MustCompile(`fencelock\.([a-z_]+)\(`)

// postgresWorld is a PostgreSQL, and the sessions of a case. Each case has a name of its own.
type postgresWorld struct {
	server   *pgtest.Postgres
	sessions map[string]*pgx.Conn
}

// TestPostgres replays the calls of PostgreSQL's functions.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	engine := pglock.New(pool, nil)
	t.Cleanup(func() { _ = engine.Close() })
	if err := fencelock.New(engine, nil).TryDo(t.Context(), "schema", nothing); err != nil { // it creates the schema
		t.Fatal(err)
	}
	replay(t, "postgres.jsonl", func(testing.TB) world { return postgresWorld{server, map[string]*pgx.Conn{}} })
}

// separator implements world.
func (postgresWorld) separator() string { return "|" }

// fill implements world: $now is the client's clock.
func (postgresWorld) fill(_ testing.TB, name string) (string, bool) {
	return strconv.FormatInt(time.Now().UnixMicro(), 10), name == "$now"
}

// do implements world.
func (w postgresWorld) do(t testing.TB, b *book, s step) (answer, shape string) {
	if s.Session == "" {
		return "", ""
	}
	conn := w.sessions[s.Session]
	if conn == nil {
		conn = w.server.Connect(t)
		w.sessions[s.Session] = conn
	}
	if s.Op == "close" {
		_ = conn.Close(t.Context())
		return "", ""
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		results, err := conn.PgConn().Exec(t.Context(), b.fill(s.Statement)).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", s.Statement, err)
		}
		var columns []string
		for _, row := range results[0].Rows {
			for _, column := range row {
				columns = append(columns, string(column))
			}
		}
		answer = strings.Join(columns, "|")
		if first, _, _ := strings.Cut(*s.Answer, "|"); !s.Repeat || strings.HasPrefix(answer, first) || time.Now().After(end) {
			break
		}
	}
	if strings.HasPrefix(s.Statement, "SELECT owner, name, token") {
		return answer, "word word token literal session word word word"
	}
	if m := function.FindStringSubmatch(s.Statement); m != nil {
		shape = functions[m[1]]
	}
	if first, _, _ := strings.Cut(answer, "|"); shape == "" {
		shape = functions[first]
	}
	return answer, shape
}
