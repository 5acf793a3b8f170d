package redlock_test

import (
	"strings"
	"testing"
)

// changed are lines of the scripts, and what a slip of the hand may make of them.
var changed = [][2]string{
	{"proposed >= now and proposed <= now + AHEAD", "proposed >= now"},
	{"proposed > tonumber(string.match(stored, '^%d+'))", "true"},
	{"tonumber(longest) >= QUARANTINE and ", ""},
	{"and now <= tonumber(ARGV[4]) and", "and"},
	{"string.sub(stored, -4) == ' - 0'", "string.sub(stored, -2) == ' 0'"},
	{"not all[1] and not all[4] and", "not all[1] and"},
	{"return now > by or redis.call", "return redis.call"},
	{"elseif not forced and notbefore > now then", "elseif false then"},
	{"elseif state == 'free' and not forced then", "elseif false then"},
	{"math.max(last + 1, now, math.min(proposed, now + AHEAD))", "math.max(last, now, math.min(proposed, now + AHEAD))"},
	{"if waited >= 0 then leave(caller) end", ""},
	{"join(caller, now - waited, mode, desc)", "join(caller, now, mode, desc)"},
	{"if state == 's' and token <= last then return 'low' end", ""},
	{"notbefore = math.max(notbefore, now + atleast * 1000)", "notbefore = now"},
	{"if last > token or not", "if not"},
	{"if ARGV[5] == '1' and state == 'x' then", "if ARGV[5] == '1' then"},
	{"extend(fence .. '/' .. ARGV[1], (by - now) / 1000 + 1)", ""},
	{"redis.call('EXISTS', lock) == 1 then return end", "false then return end"},
	{"if not waits or mode == 'x' then leave(who) end", "if not waits then leave(who) end"},
	{"left = since + life - ms", "left = since + QUARANTINE - ms - 1"},
	{"if seen ~= me or since > ms then seen", "if since > ms then seen"},
	{"drop(owner)\n  local longest", "local longest"},
	{"retoken(owner, token, state)\nend\nrearm(owner, ttl, state)", "end\nrearm(owner, ttl, state)"},
	{"forced = ownLease(only) ~= nil", "forced = true"},
	{"if forced and not only and state", "if forced and state"},
	{"last, first = math.max(last, token), '-'", "last = math.max(last, token)"},
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
			there = there || strings.Contains(text, c[0])
			return faked(strings.ReplaceAll(text, c[0], c[1]))
		})
		if !there {
			t.Errorf("no script says %q", c[0])
			continue
		}
		seed := uint64(0)
		for ; seed < 3000; seed++ {
			if compare(pair, do, seed) != nil {
				break
			}
		}
		if seed == 3000 {
			t.Errorf("no sequence shows that %q has become %q", c[0], c[1])
		}
	}
}
