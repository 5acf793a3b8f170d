package election_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		p := start(store, election.Config{Shutdown: time.Minute})
		probe := func(code int, body string) {
			t.Helper()
			synctest.Wait()
			w := httptest.NewRecorder()
			p.Health(5*time.Second).ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
			if got := strings.TrimSpace(w.Body.String()); w.Code != code || !strings.HasPrefix(got, body) {
				t.Errorf("got %d %q, want %d %q", w.Code, got, code, body)
			}
		}
		probe(200, "idle")
		r := p.run(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(20 * time.Second)
			return nil
		})
		probe(200, "leading")
		store.Lose(name)
		probe(200, "stopping")
		time.Sleep(6 * time.Second)
		probe(503, `the leader's work still runs: "billing", 6s after its end`)
		time.Sleep(20 * time.Second)
		probe(200, "leading") // again
		r.cancel(nil)
		time.Sleep(10 * time.Second)
		probe(200, "stopping") // slowly, but the name is still its own
		store.Lose(name)
		time.Sleep(time.Second)
		probe(200, "stopping")
		<-r.done
		probe(200, "idle")
	})
}
