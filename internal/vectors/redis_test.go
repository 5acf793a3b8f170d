package vectors

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/redis/rueidis"
)

// shapes says what the words of an answer are, by the script and the first word.
var shapes = map[string]string{
	"acquire taken": "word time token", "acquire granted": "word time token token", "acquire queued": "word time ticket word ms",
	"acquire held": "word time ms", "acquire limit": "word time", "acquire late": "word time", "acquire ended": "word time",
	"acquire quarantine": "word time ms",
	"adopt granted":      "word time token token", "adopt gone": "word time", "adopt unlike": "word time", "adopt late": "word time",
	"adopt ended": "word time", "renew ok": "word ms", "confirm ok": "word word ms",
	"touch late": "word time", "touch mine": "word time word token", "touch": "time word word ms", "touchall": "time ms ms ms", "touchall late": "word time",
	"break broken": "word token", "resize version": "word version", "batch": "time", "message grant": "word word token token",
	"record": "word", "take_rate": "word token",
}

// redisWorld is a Redis without keys, and its subscribers.
type redisWorld struct {
	server   *redistest.Redis
	client   rueidis.Client
	scripts  map[string]string
	messages map[string]chan string // of each channel
}

var item = regexp.MustCompile("(?m)^- `([a-z]+)`: `(head [a-z_ ]+|renew)`$")

// redisScripts returns the scripts as a client finds them: by the list of docs/protocol.md.
func redisScripts(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := item.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\n  ", " "), -1)
	for _, alone := range []string{"record", "take_rate", "return_rate", "reset_rate"} {
		rows = append(rows, []string{"", alone, alone})
	}
	scripts := map[string]string{}
	for _, r := range rows {
		for part := range strings.FieldsSeq(r[2]) {
			text, err := os.ReadFile(filepath.Join("../../redislock/lua", part+".lua"))
			if err != nil {
				t.Fatal(err)
			}
			scripts[r[1]] += string(text)
		}
	}
	return scripts
}

// TestRedis replays the exchanges with Redis.
func TestRedis(t *testing.T) {
	t.Parallel()
	server, scripts := redistest.StartRedis(t), redisScripts(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	replay(t, "redis.jsonl", func(t testing.TB) world {
		server.Do(t, "FLUSHALL")
		return redisWorld{server, client, scripts, map[string]chan string{}}
	})
}

// separator implements world.
func (redisWorld) separator() string { return " " }

// fill implements world: $until has not passed yet, $past has.
func (w redisWorld) fill(t testing.TB, name string) (string, bool) {
	now := strings.Fields(w.server.Do(t, "TIME"))
	seconds, _ := strconv.Atoi(now[0])
	micros, _ := strconv.Atoi(now[1])
	switch name {
	case "$until":
		return strconv.Itoa((seconds+10)*1_000_000 + micros), true
	case "$past":
		return strconv.Itoa((seconds-1)*1_000_000 + micros), true
	}
	return "", false
}

// do implements world.
func (w redisWorld) do(t testing.TB, b *book, s step) (answer, shape string) {
	switch {
	case s.Subscribe != "":
		w.subscribe(t, b.fill(s.Subscribe))
	case s.On != "":
		select {
		case answer = <-w.messages[b.fill(s.On)]:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: no message", s.On)
		}
		return answer, shapes["message "+strings.Fields(answer)[0]]
	case s.Script != "":
		args := append([]string{"EVAL", w.scripts[s.Script], strconv.Itoa(len(s.Keys))}, b.fillAll(s.Keys)...)
		answer = w.server.Do(t, append(args, b.fillAll(s.Args)...)...)
		shape, ok := shapes[s.Script+" "+strings.Split(answer, " ")[0]]
		if !ok {
			shape = shapes[s.Script]
		}
		if s.Script == "batch" && strings.Contains(answer, "t") {
			shape = "token" // the time is that of what was taken
		}
		return answer, shape
	case s.Command != nil:
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			answer = w.server.Do(t, b.fillAll(s.Command)...)
			if !s.Repeat || s.Answer == nil || answer == *s.Answer || time.Now().After(end) {
				break
			}
		}
		if s.Command[0] == "PTTL" {
			return answer, "ms"
		}
	}
	return answer, ""
}

// subscribe listens on a channel until the test ends, and returns when the server knows.
func (w redisWorld) subscribe(t testing.TB, channel string) {
	messages := make(chan string, 100)
	w.messages[channel] = messages
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends with ctx, at the end of the test
		defer close(ended)
		_ = w.client.Receive(ctx, w.client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { messages <- m.Message })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for end := time.Now().Add(30 * time.Second); w.server.Do(t, "PUBSUB", "NUMSUB", channel) != channel+"\n1"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no subscription to %s", channel)
		}
	}
}
