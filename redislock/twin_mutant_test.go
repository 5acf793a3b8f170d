package redislock_test

import (
	"strings"
	"testing"
)

// mutants are changes of single lines of the scripts.
var mutants = []struct {
	line, instead string
	shows         uint64 // a sequence that showed it once, and is tried first
}{
	{"local token = math.max(S.last + 1, now)", "local token = math.max(S.last, now)", 1},
	{"if ARGV[4] < stamp then return 'late ' .. stamp end", "", 0},
	{"if S.barred > ms and tonumber(call('ZSCORE', alive, owner) or 0) < 0 then", "if false then", 1},
	{"if late and tonumber(late) > now then S.barOwner(", "if false then S.barOwner(", 0},
	{"if late > now then S.barOwner(owner, late) end", "", 3},
	{"local life = math.min(ttl, GRANT)", "local life = ttl", 1},
	{"if not orderly then S.suspend(S.grantee, S.last) end", "", 4},
	{"  if heard >= token and heard <= newest then return end", "  if heard >= token then return end", 55},
	{"if new > S.version then", "if new >= 0 then", 4},
	{"if room and S.notbefore <= now and not S.lined then", "if room and S.notbefore <= now then", 55},
	{"local left = math.max(S.quarantined(), math.ceil((S.notbefore - now) / 1000))", "local left = 0", 5},
	{"if orderly then S.publish(first, string.format('advance %d %s', left, lock)) end", "", 6},
	{"return S.notifyNextClients(left, first)", "return S.notifyNextClients(left, '')", 161},
	{"return S.state == 'free' or limit == '0' or S.taken() + weight <= tonumber(S.resized or limit)", "return true", 13},
	{"if done == 'released' and tonumber(minhold) > 0 and S.notbefore > now then S.notbefore, S.dirty = 0, true end", "", 69},
	{"call('ZREMRANGEBYSCORE', alive, '-' .. cut, cut)", "", 2},
	{"if back or known or S.lined then S.lasting(ttl, back) end", "if back or S.lined then S.lasting(ttl, back) end", 1807},
	{"if new then call('PEXPIREAT', queue, S.int(S.lasts)) end", "", 0},
	{"  call('PEXPIREAT', alive, S.int(math.max(till, ms + 2 * S.patience(TOUCH))))", "", 0},
	{"if longest then call('PEXPIREAT', lock, longest) else S.state = 'free' end", "S.state = 'free'", 13},
	{"if after <= GRANT and S.told ~= '-' then S.told, S.dirty = '-', true end", "", 4},
	{"    S.told, S.dirty = S.told == '-' and client or '*', true", "    S.told, S.dirty = client, true", 0},
	{"if word >= 0 and word <= heard then call('ZREM', alive, client) end", "", 3},
	{"if S.state == 's' and mode == 's' and not S.agree(S.cap, limit) then", "if false then", 16},
	{"if minhold > 0 then S.notbefore, S.dirty = math.max(S.notbefore, now + minhold * 1000), true end", "", 4},
	{"if left <= 0 then known, left = me, 0 end", "known, left = me, 0", 0},
	{"  return string.sub(last, -2) == ' 0' and last < stamp", "  return last < stamp", 1},
	{"  return string.sub(last, -2) == ' 0' and last < stamp", "  return string.sub(last, -2) == ' 0'", 13},
	{"if (undone or not last) and untouched(last, KEYS[2]) then", "if true then", 1},
	{"if undone then S.commit(true) end", "", 82},
	{"elseif not holder and untouched(last, KEYS[k]) and", "elseif not holder and", 2},
	{"if room and untouched(last, KEYS[2]) and", "if room and", 3},
	{"  if both[2] and string.sub(both[2], -2) ~= ' q' then", "  if both[2] then", 1},
	{"    elseif last and string.sub(last, -2) ~= ' q' then", "    elseif last then", 54},
	{"(limit == '0' or call('ZCARD', shared) < tonumber(limit))", "true", 148},
	{"room = ends and tonumber(ends) > ms and", "room = ends and", 24},
	{"    for _, key in ipairs({ shared, meta, not first and lock or nil }) do call('PEXPIRE', key, life) end", "", 13},
	{"if first and tonumber(first) > math.floor(stamp / 1000) and who and", "if first and who and", 3},
	{"    local ticket = newest and newest >= stamp and string.format('%d', newest + 1) or stamp", "    local ticket = stamp", 1251},
	{"if left and left > 0 and granted <= stamp and", "if left and granted <= stamp and", 160},
	{"    if not newest then redis.call('PEXPIREAT', queue, lasts) end", "", 18},
	{"if owner and (told == '-' or told == client) and", "if owner and", 169},
	{"    redis.call('SET', KEYS[2], rest, 'PXAT', math.floor(stamp / 1000) + retention)", "", 123},
	{"  if head and not head[1] then", "  if head then", 23},
	{"retention and last and last < stamp and", "retention and last and", 117},
	{"and head[2] + 3000 * math.min(20000, ttl) > tonumber(stamp) then", "then", 343},
	{"if type(heard) == 'number' and heard > 0 then", "if true then", 641},
	{"all, holders = #holders == #chosen, chosen", "holders = chosen", 190},
	{"if not all then S.removeHolder(own, who) end", "", 190},
	{"if S.starts(who, only .. ' ') then chosen[#chosen + 1] = who end", "chosen[#chosen + 1] = who", 104},
	{"and who and string.sub(who, 1, #ARGV[2]) == ARGV[2] then", "and who then", 87},
	{"local token, floor = S.ownLease(owner, mode, ttl, again and -1 or SEATS - 1)", "local token, floor if again then token, floor = S.ownLease(owner, mode, ttl, -1) end", 3},
	{"local ticket = call('ZSCORE', queue, entry)", "local ticket = again and call('ZSCORE', queue, entry)", 7},
	{"local left = held and string.sub(both[1], 1, #own) ~= own and", "local left = held and", 516},
	{"if string.sub(who, 1, #ARGV[2] + 1) == ARGV[2] .. ' ' then room = false end", "", 17},
}

// TestTwinNoticesEveryChange: random calls tell the scripts from their twin as soon as
// one line of them is changed.
func TestTwinNoticesEveryChange(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	client := rueidisClient(t, rueidisOption(s.server.Addr()))
	for _, m := range mutants {
		changed := false
		server := &realLua{client: client, scripts: twinScripts(func(_, source string) string {
			changed = changed || strings.Contains(source, m.line)
			return strings.ReplaceAll(source, m.line, m.instead)
		})}
		if !changed {
			t.Errorf("no script has the line\n%s", m.line)
			continue
		}
		noticed := newPlay(m.shows, server).run(t, 25) != nil
		seed := m.shows
		for other := uint64(0); other < 3000 && !noticed; other++ {
			seed, noticed = other, newPlay(other, server).run(t, 25) != nil
		}
		if !noticed {
			t.Errorf("nobody notices\n%s\ninstead of\n%s", m.instead, m.line)
			continue
		}
		t.Logf("noticed in sequence %d: %s", seed, strings.TrimSpace(m.line))
	}
}
