package redislock_test

import (
	"strings"
	"testing"
)

// mutants are changes of single lines of the scripts: what is there, and what is
// there instead.
var mutants = [][2]string{
	{"local token = math.max(S.last + 1, now)", "local token = math.max(S.last, now)"},
	{"if ARGV[4] < stamp then return 'late ' .. stamp end", ""},
	{"if S.barred > ms and tonumber(call('ZSCORE', alive, owner) or 0) < 0 then", "if false then"},
	{"if late and tonumber(late) > now then S.bar(", "if false then S.bar("},
	{"if late > now then S.bar(owner, late) end", ""},
	{"local life = math.min(ttl, GRANT)", "local life = ttl"},
	{"if not orderly then S.suspend(S.grantee, S.last) end", ""},
	{"  if heard >= token and heard <= newest then return end", "  if heard >= token then return end"},
	{"if new > S.version then", "if new >= 0 then"},
	{"if room and S.notbefore <= now and not S.lined then", "if room and S.notbefore <= now then"},
	{"local left = math.max(S.quarantined(), math.ceil((S.notbefore - now) / 1000))\n  if left > 0 then return S.notifyNextClients(left, '') end", "local left = 0"},
	{"return S.state == 'free' or limit == '0' or S.taken() + weight <= tonumber(S.resized or limit)", "return true"},
	{"if done == 'released' and closed and S.notbefore > now then S.notbefore, S.dirty = 0, true end", ""},
	{"call('ZREMRANGEBYSCORE', alive, '-' .. cut, cut)", ""},
	{"if new then call('PEXPIREAT', queue, S.int(S.lasts)) end", ""},
	{"  call('PEXPIREAT', alive, S.int(math.max(till, ms + 2 * S.patience(TOUCH))))", ""},
	{"if longest then call('PEXPIREAT', lock, longest) else S.state = 'free' end", "S.state = 'free'"},
	{"if after <= GRANT and S.told ~= '-' then S.told, S.dirty = '-', true end", ""},
	{"    S.told, S.dirty = S.told == '-' and client or '*', true", "    S.told, S.dirty = client, true"},
	{"if word >= 0 and word <= heard then call('ZREM', alive, client) end", ""},
	{"if S.state == 's' and mode == 's' and not S.agree(S.cap, limit) then", "if false then"},
	{"if atleast > 0 then S.notbefore, S.dirty = math.max(S.notbefore, now + atleast * 1000), true end", ""},
	{"if left <= 0 then known, left = me, 0 end", "known, left = me, 0"},
	{"  return string.sub(last, -2) == ' 0' and last < stamp", "  return last < stamp"},
	{"  return string.sub(last, -2) == ' 0' and last < stamp", "  return string.sub(last, -2) == ' 0'"},
	{"if (undone or not last) and untouched(last, KEYS[2]) then", "if true then"},
	{"if undone then S.commit(true) end", ""},
	{"elseif not holder and untouched(last, KEYS[k]) and", "elseif not holder and"},
	{"if not untouched(had[i + 1] and (last or ''), fence) then return 'slow' end", ""},
	{"if room and untouched(last, KEYS[2]) and", "if room and"},
	{"  if both[2] and string.sub(both[2], -2) ~= ' q' then", "  if both[2] then"},
	{"    elseif last and string.sub(last, -2) ~= ' q' then", "    elseif last then"},
	{"(limit == '0' or call('ZCARD', shared) < tonumber(limit))", "true"},
	{"room = ends and tonumber(ends) > ms and", "room = ends and"},
	{"    for _, key in ipairs({ shared, meta, not first and lock or nil }) do call('PEXPIRE', key, life) end", ""},
	{"if first and tonumber(first) > math.floor(stamp / 1000) and who and", "if first and who and"},
	{"    local ticket = newest and newest >= stamp and string.format('%d', newest + 1) or stamp", "    local ticket = stamp"},
	{"if left and left > 0 and granted <= stamp and", "if left and granted <= stamp and"},
	{"    if not newest then redis.call('PEXPIREAT', queue, lasts) end", ""},
	{"if owner and (told == '-' or told == client) and", "if owner and"},
	{"    redis.call('SET', KEYS[2], rest, 'PXAT', math.floor(stamp / 1000) + retention)", ""},
	{"  if head and not head[1] then", "  if head then"},
	{"retention and last and last < stamp and", "retention and last and"},
	{"and head[2] + 3000 * math.min(20000, ttl) > tonumber(stamp) then", "then"},
	{"if type(heard) == 'number' and heard > 0 then", "if true then"},
	{"all, holders = #holders == #chosen, chosen", "holders = chosen"},
	{"if not all then S.removeHolder(own, who) end", ""},
	{"if S.starts(who, only .. ' ') then chosen[#chosen + 1] = who end", "chosen[#chosen + 1] = who"},
	{"and who and string.sub(who, 1, #ARGV[2]) == ARGV[2] then", "and who then"},
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
			changed = changed || strings.Contains(source, m[0])
			return strings.ReplaceAll(source, m[0], m[1])
		})}
		if !changed {
			t.Errorf("no script has the line\n%s", m[0])
			continue
		}
		seed, noticed := uint64(0), false
		for ; seed < 3000 && !noticed; seed++ {
			noticed = newPlay(seed, server).run(t, 25) != nil
		}
		if !noticed {
			t.Errorf("nobody notices\n%s\ninstead of\n%s", m[1], m[0])
			continue
		}
		t.Logf("noticed in sequence %d: %s", seed, strings.TrimSpace(m[0]))
	}
}
