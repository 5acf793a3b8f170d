//go:build unix

package cli

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/fencelock/fencelock/redlock"
)

// TestShortestTTL: the page has the shortest TTL of each engine and of the command.
func TestShortestTTL(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### The shortest TTL\n")
	section, _, _ = strings.Cut(section, "###")
	want := map[string]time.Duration{}
	for _, row := range regexp.MustCompile(`(?m)^- (.*): (\d+ m?s)$`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if want[name[1]], err = time.ParseDuration(strings.ReplaceAll(row[2], " ", "")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, e := range map[string]driver.Engine{
		"filelock": filelock.New("none", nil), "memlock": memlock.New(nil), "pglock": pglock.New(nil, nil),
		"recordlock": recordlock.New(memlock.New(nil).Records(), nil), "redislock": goredis.New(redis.NewClient(&redis.Options{}), nil), "redlock": redlock.New(nil, nil),
	} {
		req := driver.Request{Name: "a", TTL: want[name]}
		if err := req.Check(e.Traits()); err != nil {
			t.Errorf("%s: the page says %v: %v", name, want[name], err)
		}
		req.TTL--
		if err := req.Check(e.Traits()); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: a TTL shorter than the page says is accepted", name)
		}
		delete(want, name)
	}
	if want["fencelock"] != engineurl.ShortestTTL {
		t.Errorf("the command: the page says %v, the code %v", want["fencelock"], engineurl.ShortestTTL)
	}
	delete(want, "fencelock")
	delete(want, "fencelock-all chaos") // TestShortestTTL of chaoscli
	if len(want) > 0 {
		t.Errorf("the page has more: %v", want)
	}
}
