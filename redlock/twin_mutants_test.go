package redlock_test

import (
	"strings"
	"testing"
)

// changed are lines of the scripts, and what a slip of the hand may make of them.
var changed = []struct {
	line, slip string
	shows      uint64 // a sequence that showed it once, and is tried first
}{
	{"proposed >= now and proposed <= now + AHEAD", "proposed >= now", 63},
	{"proposed > tonumber(string.match(stored, '^%d+'))", "true", 59},
	{"tonumber(longest) >= QUARANTINE and ", "", 657},
	{"and now <= tonumber(ARGV[4]) and", "and", 4},
	{"string.sub(stored, -4) == ' - 0'", "string.sub(stored, -2) == ' 0'", 1081},
	{"not all[1] and not all[4] and", "not all[1] and", 41},
	{"return now > by or redis.call", "return redis.call", 0},
	{"elseif not forced and notbefore > now then", "elseif false then", 39},
	{"elseif state == 'free' and not forced then", "elseif false then", 32},
	{"math.max(last + 1, now, math.min(proposed, now + AHEAD))", "math.max(last, now, math.min(proposed, now + AHEAD))", 4},
	{"if waited >= 0 then leave(caller) end", "", 123},
	{"join(caller, now - waited, mode, desc)", "join(caller, now, mode, desc)", 11},
	{"if state == 's' and token <= last then return 'low' end", "", 38},
	{"notbefore = math.max(notbefore, now + minhold * 1000)", "notbefore = now", 4},
	{"if last > token or not", "if not", 7},
	{"if ARGV[5] == '1' then", "if false then", 97},
	{"extend(bar, (by - now) / 1000 + 1)", "", 3},
	{"redis.call('GET', bar) == 'freed'", "false", 5},
	{"ARGV[3] ~= '0' and not again", "ARGV[3] ~= '0'", 115},
	{"redis.call('EXISTS', lock) == 1 then return end", "false then return end", 16},
	{"if not waits or mode == 'x' then leave(who) end", "if not waits then leave(who) end", 33},
	{"left = since + life - ms", "left = since + QUARANTINE - ms - 1", 0},
	{"if seen ~= me or since > ms then seen", "if since > ms then seen", 0},
	{"drop(owner)\n  local longest", "local longest", 9},
	{"retoken(owner, token, state)\nend\nrearm(owner, ttl, state)", "end\nrearm(owner, ttl, state)", 10},
	{"forced = ownLease(only) ~= nil", "forced = true", 42},
	{"if call == 'adopt' and not (forced and mode == state) then return says('gone', '') end", "", 2},
	{"not (forced and mode == state)", "not forced", 42},
	{"if call == 'adopt' then bar(only) else", "if call == 'adopt' then else", 66},
	{"if forced and not only and state", "if forced and state", 516},
	{"last, first = math.max(last, token), '-'", "last = math.max(last, token)", 59},
}

// TestTwinsNoticeAChange changes one line of the scripts after the other: a sequence
// shows it.
func TestTwinsNoticeAChange(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	do := commands(t, w[0])
	for _, c := range changed {
		there := false
		pair := twinEngines(t, w, func(text string) string {
			there = there || strings.Contains(text, c.line)
			return faked(strings.ReplaceAll(text, c.line, c.slip))
		})
		if !there {
			t.Errorf("no script says %q", c.line)
			continue
		}
		shown := compare(pair, do, c.shows) != nil
		seed := c.shows
		for next := uint64(0); next < 3000 && !shown; next++ {
			seed, shown = next, compare(pair, do, next) != nil
		}
		if !shown {
			t.Errorf("no sequence shows that %q has become %q", c.line, c.slip)
			continue
		}
		t.Logf("noticed by sequence %d: %s", seed, c.line)
	}
}
