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
	{"proposed >= now and proposed <= now + AHEAD", "proposed >= now", 9},
	{"proposed > tonumber(string.match(stored, '^%d+'))", "true", 7},
	{"tonumber(longest) >= QUARANTINE and ", "", 657},
	{"and now <= tonumber(ARGV[4]) and", "and", 4},
	{"string.sub(stored, -4) == ' - 0'", "string.sub(stored, -2) == ' 0'", 1081},
	{"not all[1] and not all[4] and", "not all[1] and", 41},
	{"return now > by or redis.call", "return redis.call", 0},
	{"elseif not forced and notbefore > now then", "elseif false then", 12},
	{"elseif state == 'free' and not forced then", "elseif false then", 14},
	{"math.max(last + 1, now, math.min(proposed, now + AHEAD))", "math.max(last, now, math.min(proposed, now + AHEAD))", 2},
	{"if waited >= 0 then leave(caller) end", "", 14},
	{"join(caller, now - waited, mode, desc)", "join(caller, now, mode, desc)", 6},
	{"if state == 's' and token <= last then return 'low' end", "", 47},
	{"notbefore = math.max(notbefore, now + minhold * 1000)", "notbefore = now", 12},
	{"if last > token or not", "if not", 13},
	{"if ARGV[5] == '1' then", "if false then", 97},
	{"extend(bar, (by - now) / 1000 + 1)", "", 3},
	{"redis.call('GET', bar) == 'freed'", "false", 0},
	{"ARGV[3] ~= '0' and not again", "ARGV[3] ~= '0'", 0},
	{"redis.call('EXISTS', lock) == 1 then return end", "false then return end", 6},
	{"if not waits or mode == 'x' then leave(who) end", "if not waits then leave(who) end", 33},
	{"left = since + life - ms", "left = since + QUARANTINE - ms - 1", 0},
	{"if seen ~= me or since > ms then seen", "if since > ms then seen", 0},
	{"drop(owner)\n  local longest", "local longest", 4},
	{"retoken(owner, token, state)\nend\nrearm(owner, ttl, state)", "end\nrearm(owner, ttl, state)", 10},
	{"forced = ownLease(only) ~= nil", "forced = true", 42},
	{"if call == 'adopt' and not (forced and mode == state) then return says('gone', '') end", "", 0},
	{"not (forced and mode == state)", "not forced", 0},
	{"if call == 'adopt' then bar(only) else", "if call == 'adopt' then else", 0},
	{"if forced and not only and state", "if forced and state", 15},
	{"last, first = math.max(last, token), '-'", "last = math.max(last, token)", 14},
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
		for seed := uint64(0); seed < 3000 && !shown; seed++ {
			shown = compare(pair, do, seed) != nil
		}
		if !shown {
			t.Errorf("no sequence shows that %q has become %q", c.line, c.slip)
			continue
		}
		t.Logf("noticed: %s", c.line)
	}
}
