package redislock_test

import (
	"strings"
	"testing"
)

// mutants are changes of single lines of the scripts.
var mutants = []struct{ line, instead string }{
	{"  if not last or last < stamp then return stamp end", "  do return stamp end"},
	{"  call('SET', fence, token, 'PXAT', math.floor(last / 1000) + retention)", ""},
	{"if stamp > ARGV[5] then return 'late ' .. stamp end", ""},
	{"base .. 'queue:' .. tag, base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token", "base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token"},
	{"base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token", "base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token"},
	{", base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token", ") == 0 then\n  local token"},
	{"if call('EXISTS', s.left .. owner) == 1 then return 'ended ' .. stamp end --", "--"},
	{"s.mode == 'x' and not starts(s.text, FORMAT .. owner .. ' ') and '-'", "s.mode == 'x' and '-'"},
	{"  if s.mode == 's' then return call('ZSCORE', s.lock, entry) end\n", ""},
	{"elseif s.mode == 's' and r.mode == 's' and not agrees(s, r) then\n  return", "elseif false then\n  return"},
	{"elseif fits(s, r) and not s.lined then", "elseif fits(s, r) then"},
	{"  if shut(s) == 0 then token, floor = addHolder(s, r, r.ttl) end", "  token, floor = addHolder(s, r, r.ttl)"},
	{"  if left > 0 and not wait then return string.format('quarantine %s %d', stamp, left) end", ""},
	{"  if r.minhold > 0 then close(s, owner, r.minhold) end", ""},
	{"  if minhold > call('PTTL', s.closed) then", "  if true then"},
	{"  local ticket = newest and newest >= stamp and string.format('%d', newest + 1) or stamp", "  local ticket = stamp"},
	{"call('ZADD', s.queue, 'NX', ticket, r.entry)", "call('ZADD', s.queue, ticket, r.entry)"},
	{"  call('PEXPIRE', s.queue, QUEUED)\n  call('SET', s.alive", "  call('SET', s.alive"},
	{"  speaks(s, r.client, string.match(letters, '%d+') or '0')\n", ""},
	{"speaks(s, client, ARGV[5])\n", ""},
	{"if #ARGV > 6 then call('PEXPIRE', s.queue, QUEUED) end\n", ""},
	{"local sent = call('GET', s.alive .. r.client) or '0'", "local sent = '0'"},
	{"call('SET', KEYS[1], ARGV[3], 'PX', GRANT)\n", ""},
	{"call('MGET', lock)[1] and call('ZRANK', base .. 'queue:' .. tag, ARGV[i + 2])", "call('MGET', lock)[1]"},
	{"call('MGET', lock)[1] and call('ZRANK', base", "call('ZRANK', base"},
	{"if stamp > ARGV[2] then return 'late ' .. stamp end\nlocal base, said", "local base, said"},
	{"math.min(r.ttl, GRANT)", "r.ttl"},
	{"  release(s, r.owner, token)\n  call('DEL', s.alive .. r.client)", "  call('DEL', s.alive .. r.client)"},
	{"  call('DEL', s.alive .. r.client)\n", ""},
	{"      if given == 0 and shut(s) > 0 then return end", ""},
	{"      if s.mode == 's' and r.mode == 's' and not agrees(s, r) then", "      if false then"},
	{"  for i = 3, #s.over, 2 do removeHolder(s, s.over[i], seatOf(s, s.over[i])) end", ""},
	{"  s.used = s.used - (r and r.weight or 0)", ""},
	{"s.used + r.weight <= tonumber(resized(s) or r.limit)", "s.used < tonumber(resized(s) or r.limit)"},
	{"tonumber(resized(s) or r.limit)", "tonumber(r.limit)"},
	{"or resized(s) and r.limit ~= '0' and s.limit ~= '0' end", "end"},
	{"  if s.resized ~= false then call('PEXPIRE', s.resizing, s.retention) end", ""},
	{"  if not starts(entry, owner .. ' ') then return false end", ""},
	{"    if not starts(s.text, FORMAT .. owner .. ' ' .. token .. ' ') then return false end\n", ""},
	{"  local life = late and math.ceil((late - stamp) / 1000) or 0", "  local life = 0"},
	{"    if s.waits <= 0 then known, s.waits = me, 0 end", "    known, s.waits = me, 0"},
	{"if waited == 0 and not late then", "if had and not late then"},
	{"  call('SET', base .. 'left:' .. tag .. ':' .. owner, id, 'PX', GRANT)\n", ""},
	{"if had or late then mark(s, owner, (had or again) and id or '', late) end", ""},
	{"local again = not had and call('GET', s.left .. owner) == id", "local again = false"},
	{"local again = not had and call('GET', s.left .. owner) == id", "local again = not had and call('EXISTS', s.left .. owner) == 1"},
	{"if waited == 1 then advance(s) end", ""},
	{"mark(s, owner, '', late)\n", ""},
	{"    mark(s, owner, '')\n", ""},
	{"return closed > 0 and math.min(left, closed) or left, '-'", "return left, '-'"},
	{"  if i > 6 and call('EXISTS', s.left .. owner) == 0 then", "  if i > 6 then"},
	{"  if token then return string.format('mine %s %s %s', stamp, owner, token) end\n", ""},
	{"      call('SET', base .. 'left:' .. tag .. ':' .. owner, ARGV[4], 'PX', GRANT)\n", ""},
	{"if call('GET', s.closed) == owner then call('DEL', s.closed) end", ""},
	{"local done = token and release(s, owner, token) and 'released' or 'gone'", "local done = 'gone'"},
	{"if tonumber(ARGV[4]) > version then", "if true then"},
	{"  if not only or only == owner then", "  if true then"},
	{"  broken = call('DEL', s.lock, s.closed) > 0 or broken", "  broken = call('DEL', s.lock) > 0 or broken"},
	{"elseif broken then\n  call('DEL', s.closed)", "elseif false then\n  call('DEL', s.closed)"},
	{"if call('EXISTS', s.left .. owner) == 1 then return 'ended ' .. stamp end\nlocal r, old", "local r, old"},
	{"if stamp > ARGV[5] then return 'late ' .. stamp end\nstays(s)", "stays(s)"},
	{"  extend(s, owner, token, r.ttl)\n  floor = floorOf(s, token)\nelseif s.mode ~=", "  floor = floorOf(s, token)\nelseif s.mode ~="},
	{"if token then -- an earlier attempt succeeded", "if false then"},
	{"elseif s.mode ~= r.mode or not", "elseif not"},
	{"(old and old.owner == from or starts(s.text, FORMAT .. from .. ' ' .. was .. ' '))", "(old or s.mode == 'x')"},
	{"elseif old and (old.limit ~= r.limit or old.weight ~= r.weight) then", "elseif false then"},
	{"  local left = quarantined(s) -- a server that has lost an adoption must not repeat it", "  local left = 0"},
	{"  release(s, from, was)\n  mark", "  mark"},
	{"  mark(s, from, '')\n  token", "  token"},
	{"local token = mint(s.fence, stamp, s.retention)\nadvance(s)", "local token = stamp\nadvance(s)"},
	{"  call('ZADD', s.lock, s.ms + ttl, token)\n  settle(s)", "  call('ZADD', s.lock, s.ms + ttl, token)"},
	{"\n        and mint(base .. 'fence:' .. tag, stamp, ARGV[2]) == stamp then", " then"},
	{"and call('EXISTS', base .. 'queue:' .. tag) == 0 then\n      call('DEL', lock)", "then\n      call('DEL', lock)"},
	{"if answer then return answer end", ""},
	{"local left = ARGV[3] and", "redis.call('PEXPIRE', KEYS[1], ARGV[2])\nlocal left = ARGV[3] and"},
	{"local left = ARGV[3] and", "local left ="},
	{"ARGV[7] and ' ' .. call('PTTL', s.lock)", "ARGV[7] and ' ' .. call('PTTL', s.fence)"},
	{"call('SET', base .. 'batch:' .. ARGV[4], answer, 'PX', GRANT)", ""},
	{"base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0\n        and", "base .. 'left:' .. tag .. ':' .. owner) == 0\n        and"},
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
		seed, noticed := uint64(0), false
		for ; seed < 3000 && !noticed; seed++ {
			noticed = newPlay(seed, server).run(t, 25) != nil
		}
		if !noticed {
			t.Errorf("nobody notices\n%s\ninstead of\n%s", m.instead, m.line)
			continue
		}
		t.Logf("noticed by %d sequences: %s", seed, strings.TrimSpace(m.line))
	}
}
