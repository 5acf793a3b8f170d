//go:build unix

package cli

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// TestBestLivingProcessLeads: over kills and returns of three processes of the ranks 0, 1 and 2, the
// best living one leads for nearly all the time, and no former leader answers that it leads. The
// settle time is 1 s and the TTL 2 s. With FENCELOCK_SLOW, a process is killed every 30 s.
func TestBestLivingProcessLeads(t *testing.T) {
	t.Parallel()
	kills, calm := 3, 5*time.Second
	if os.Getenv("FENCELOCK_SLOW") != "" {
		kills, calm = 25, 30*time.Second
	}
	url := "redis://" + redistest.StartRedis(t).Addr()
	w := &watcher{t: t}
	for rank := range 3 {
		c := &candidate{rank: rank, url: url, app: freeAddress(t), probe: freeAddress(t)}
		c.begin(t)
		defer c.end()
		w.candidates, w.alive[rank] = append(w.candidates, c), true
	}
	w.watch(5 * time.Second)
	w.good, w.all = 0, 0 // from the first election on
	for range kills {
		rank := rand.IntN(3)
		c := w.candidates[rank]
		must(t, c.cmd.Process.Kill())
		_ = c.cmd.Wait() // it was killed
		w.alive[rank] = false
		w.watch(time.Duration(rand.Int64N(int64(calm / 5))))
		c.begin(t)
		w.alive[rank] = true
		w.watch(calm*4/5 + time.Duration(rand.Int64N(int64(calm/5))))
	}
	share := w.good.Seconds() / w.all.Seconds()
	t.Logf("over %d kills, the best living process led for %.1f %% of %v", kills, 100*share, w.all.Round(time.Second))
	if calm > 5*time.Second && share < 0.95 || share == 0 {
		t.Error("too short")
	}
}

// watcher asks candidates whether they lead.
type watcher struct {
	t          *testing.T
	candidates []*candidate
	alive      [3]bool
	token      int64 // of the latest leader
	good, all  time.Duration
}

// watch asks for some time.
func (w *watcher) watch(d time.Duration) {
	last := time.Now()
	for end := last.Add(d); time.Now().Before(end); {
		best, leads := true, false
		for rank, c := range w.candidates {
			if w.alive[rank] {
				if w.leads(c) && best {
					leads = true
				}
				best = false
			}
		}
		now := time.Now()
		if w.all += now.Sub(last); leads {
			w.good += now.Sub(last)
		}
		last = now
		time.Sleep(20 * time.Millisecond)
	}
}

// leads reports whether a candidate answers that it leads.
func (w *watcher) leads(c *candidate) bool {
	code, body := get("http://" + c.probe + "/leader")
	if code != http.StatusOK {
		return false
	}
	var token int64
	if _, err := fmt.Sscanf(body, "leader, token %d", &token); err != nil || token < w.token {
		w.t.Errorf("%q after the token %d: %v", body, w.token, err)
	}
	w.token = token
	return true
}
