package redislock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/rueidis"
)

// TestShortWays: what happens most does without the long text of its script, which
// takes the server longer than all commands.
func TestShortWays(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	long := twinScripts(nil)
	short := twinScripts(func(_, source string) string {
		return strings.Replace(source, "-- Every script that may grant", "do return 'the long way' end --", 1)
	})
	p := newPlay(1, &realLua{client: rueidisClient(t, rueidisOption(s.server.Addr())), scripts: long})
	says := func(scripts map[string]*rueidis.Lua, want, script string, args ...string) {
		t.Helper()
		args = append(args, fmt.Sprint(p.Now/1_000_000), fmt.Sprint(p.Now%1_000_000))
		got, err := scripts[script].Exec(t.Context(), p.client, p.keys, args).AsStrSlice()
		if err != nil || !strings.HasPrefix(got[0], want) {
			t.Fatalf("%s says %q, want %s: %v", script, got, want, err)
		}
		p.Now += 10 * millisecond
	}
	acquire := func(scripts map[string]*rueidis.Lua, want, owner string, args ...string) (token string) {
		t.Helper()
		token = fmt.Sprint(p.Now)
		mode := "x 0"
		if len(args) == 3 {
			mode = "s " + args[2]
		}
		args = append([]string{p.common("w"), owner, owner + " " + mode + " 30000 0 1 host note", fmt.Sprint(p.Now)}, args...)
		says(scripts, want, "acquire", args...)
		return token
	}
	release := func(scripts map[string]*rueidis.Lua, args ...string) {
		t.Helper()
		says(scripts, "ok ", "release", append([]string{p.common("-")}, args...)...)
	}

	// A lock that is free, exclusive or shared.
	release(short, "fencelock a "+acquire(short, "taken ", "a", "30000", "600000")+" ")
	permit := []string{"30000", "600000", "5"}
	first, second := acquire(short, "granted ", "a", permit...), acquire(short, "granted ", "b", permit...)
	release(short, "a "+first+" ", first)
	release(short, "b "+second+" ", second)

	// A lock that goes from hand to hand, or did, once everybody knows that it does.
	for _, client := range []string{"b", "c", "d"} {
		says(long, "ok", "ear", "SADD", "fencelock:"+client)
	}
	token := acquire(long, "taken ", "a", "30000", "600000")
	acquire(long, "queued ", "b")
	acquire(long, "queued ", "c")
	granted := fmt.Sprint(p.Now)
	release(long, "fencelock a "+token+" ")
	acquire(short, "queued ", "d")
	for _, owner := range []string{"b", "c", "d"} {
		next := fmt.Sprint(p.Now)
		release(short, "fencelock "+owner+" "+granted+" ")
		granted = next
	}

	// One who alone was told of a long lease is next.
	token = acquire(short, "taken ", "a", "30000", "600000")
	acquire(long, "queued ", "b")
	granted = fmt.Sprint(p.Now)
	release(short, "fencelock a "+token+" ")
	release(short, "fencelock b "+granted+" ")

	// One who gave up unanswered sends all the long way for as long as its request may still
	// come, and little longer.
	token = acquire(short, "taken ", "a", "30000", "600000")
	acquire(long, "queued ", "b")
	acquire(long, "queued ", "c")
	may := fmt.Sprint(p.Now + 1000*millisecond)
	says(long, "gone", "leave", p.common("-"), "lost", "lost x 0 30000 0 1 host note", "0", may)
	granted = fmt.Sprint(p.Now)
	release(long, "fencelock a "+token+" ")
	acquire(short, "the long way", "d")
	acquire(long, "queued ", "d")
	for _, owner := range []string{"b", "c"} {
		p.Now += 1700 * millisecond
		next := fmt.Sprint(p.Now)
		release(long, "fencelock "+owner+" "+granted+" ")
		granted = next
	}
	acquire(short, "queued ", "b")
	release(short, "fencelock d "+granted+" ")
}
