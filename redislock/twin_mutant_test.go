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
	{"  if not last or last < stamp then return stamp end", "  do return stamp end", 1},
	{"  call('SET', fence, token, 'PXAT', math.floor(last / 1000) + retention)", "", 1},
	{"if stamp > ARGV[5] then return 'late ' .. stamp end", "", 0},
	{"base .. 'queue:' .. tag, base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token", "base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token", 12},
	{"base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token", "base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token", 13},
	{", base .. 'left:' .. tag .. ':' .. owner) == 0 then\n  local token", ") == 0 then\n  local token", 56},
	{"if call('EXISTS', s.left .. owner) == 1 then return 'ended ' .. stamp end --", "--", 3},
	{"s.mode == 'x' and not starts(s.text, FORMAT .. owner .. ' ') and '-'", "s.mode == 'x' and '-'", 1},
	{"  if s.mode == 's' then return call('ZSCORE', s.lock, entry) end\n", "", 3},
	{"elseif s.mode == 's' and r.mode == 's' and not agrees(s, r) then\n  return", "elseif false then\n  return", 5},
	{"elseif fits(s, r) and not s.lined then", "elseif fits(s, r) then", 5},
	{"  if shut(s) == 0 then token, floor = addHolder(s, r, r.ttl) end", "  token, floor = addHolder(s, r, r.ttl)", 4},
	{"  if left > 0 and not wait then return string.format('quarantine %s %d', stamp, left) end", "", 0},
	{"  if r.minhold > 0 then close(s, owner, r.minhold) end", "", 0},
	{"  if minhold > call('PTTL', s.closed) then", "  if true then", 160},
	{"  local ticket = newest and newest >= stamp and string.format('%d', newest + 1) or stamp", "  local ticket = stamp", 1},
	{"call('ZADD', s.queue, 'NX', ticket, r.entry)", "call('ZADD', s.queue, ticket, r.entry)", 1},
	{"  call('PEXPIRE', s.queue, QUEUED)\n  call('SET', s.alive", "  call('SET', s.alive", 0},
	{"  speaks(s, r.client, string.match(letters, '%d+') or '0')\n", "", 0},
	{"speaks(s, client, ARGV[5])\n", "", 2},
	{"if #ARGV > 6 then call('PEXPIRE', s.queue, QUEUED) end\n", "", 4},
	{"local sent = call('GET', s.alive .. r.client) or '0'", "local sent = '0'", 2},
	{"call('SET', KEYS[1], ARGV[3], 'PX', GRANT)\n", "", 4},
	{"held[i - 1] and call('ZRANK', base .. 'queue:' .. tag, ARGV[i + 2])", "held[i - 1]", 6},
	{"held[i - 1] and call('ZRANK', base", "call('ZRANK', base", 4},
	{"if stamp > ARGV[2] then return 'late ' .. stamp end\nlocal base, said", "local base, said", 86},
	{"math.min(r.ttl, GRANT)", "r.ttl", 2},
	{"  release(s, r.owner, token)\n  call('DEL', s.alive .. r.client)", "  call('DEL', s.alive .. r.client)", 94},
	{"  call('DEL', s.alive .. r.client)\n", "", 94},
	{"      if given == 0 and shut(s) > 0 then return end", "", 4},
	{"      if s.mode == 's' and r.mode == 's' and not agrees(s, r) then", "      if false then", 51},
	{"  for i = 3, #s.over, 2 do removeHolder(s, s.over[i], seatOf(s, s.over[i])) end", "", 3},
	{"  s.used = s.used - (r and r.weight or 0)", "", 3},
	{"s.used + r.weight <= tonumber(resized(s) or r.limit)", "s.used < tonumber(resized(s) or r.limit)", 5},
	{"tonumber(resized(s) or r.limit)", "tonumber(r.limit)", 5},
	{"or resized(s) and r.limit ~= '0' and s.limit ~= '0' end", "end", 5},
	{"  if s.resized ~= false then call('PEXPIRE', s.resizing, s.retention) end", "", 3},
	{"  if not starts(entry, owner .. ' ') then return false end", "", 0},
	{"    if not starts(s.text, FORMAT .. owner .. ' ' .. token .. ' ') then return false end\n", "", 1},
	{"  local life = late and math.ceil((late - stamp) / 1000) or 0", "  local life = 0", 0},
	{"    if s.waits <= 0 then known, s.waits = me, 0 end", "    known, s.waits = me, 0", 0},
	{"if waited == 0 and not late then", "if had and not late then", 6},
	{"  call('SET', base .. 'left:' .. tag .. ':' .. owner, id, 'PX', GRANT)\n", "", 2},
	{"if had or late then mark(s, owner, (had or again) and id or '', late) end", "", 0},
	{"local again = not had and call('GET', s.left .. owner) == id", "local again = false", 11},
	{"local again = not had and call('GET', s.left .. owner) == id", "local again = not had and call('EXISTS', s.left .. owner) == 1", 1},
	{"if waited == 1 then serve(s) end", "", 2},
	{"mark(s, owner, '', late)\n", "", 0},
	{"    mark(s, owner, '')\n", "", 1},
	{"return closed > 0 and math.min(left, closed) or left, '-'", "return left, '-'", 24},
	{"  if i > 6 and call('EXISTS', s.left .. owner) == 0 then", "  if i > 6 then", 24},
	{"  if token then return string.format('mine %s %s %s', stamp, owner, token) end\n", "", 6},
	{"      call('SET', base .. 'left:' .. tag .. ':' .. owner, ARGV[4], 'PX', GRANT)\n", "", 0},
	{"if call('GET', s.closed) == owner then call('DEL', s.closed) end", "", 190},
	{"local done = token and release(s, owner, token) and 'released' or 'gone'", "local done = 'gone'", 31},
	{"if tonumber(ARGV[4]) > version then", "if true then", 1},
	{"  if not only or only == owner then", "  if true then", 21},
	{"  broken = call('DEL', s.lock, s.closed) > 0 or broken", "  broken = call('DEL', s.lock) > 0 or broken", 7},
	{"elseif broken then\n  call('DEL', s.closed)", "elseif false then\n  call('DEL', s.closed)", 371},
	{"if call('EXISTS', s.left .. owner) == 1 then return 'ended ' .. stamp end\nlocal r, old", "local r, old", 1},
	{"if stamp > ARGV[5] then return 'late ' .. stamp end\nstays(s)", "stays(s)", 0},
	{"  extend(s, owner, token, r.ttl)\n  floor = floorOf(s, token)\nelseif s.mode ~=", "  floor = floorOf(s, token)\nelseif s.mode ~=", 503},
	{"if token then -- an earlier attempt succeeded", "if false then", 108},
	{"elseif s.mode ~= r.mode or not", "elseif not", 34},
	{"(old and old.owner == from or starts(s.text, FORMAT .. from .. ' ' .. was .. ' '))", "(old or s.mode == 'x')", 25},
	{"elseif old and (old.limit ~= r.limit or old.weight ~= r.weight) then", "elseif false then", 441},
	{"  local left = quarantined(s) -- a server that has lost an adoption must not repeat it", "  local left = 0", 480},
	{"  release(s, from, was)\n  mark", "  mark", 22},
	{"  mark(s, from, '')\n  token", "  token", 22},
	{"local token = mint(s.fence, stamp, s.retention)\nserve(s)", "local token = stamp\nserve(s)", 1},
	{"  call('ZADD', s.lock, s.ms + ttl, token)\n  settle(s)", "  call('ZADD', s.lock, s.ms + ttl, token)", 3},
	{"\n        and mint(base .. 'fence:' .. tag, stamp, ARGV[2]) == stamp then", " then", 1},
	{"and call('EXISTS', base .. 'queue:' .. tag) == 0 then\n      call('DEL', lock)", "then\n      call('DEL', lock)", 46},
	{"if answer then return answer end", "", 1},
	{"local left = ARGV[3] and", "redis.call('PEXPIRE', KEYS[1], ARGV[2])\nlocal left = ARGV[3] and", 14},
	{"local left = ARGV[3] and", "local left =", 17},
	{"ARGV[7] and ' ' .. call('PTTL', s.lock)", "ARGV[7] and ' ' .. call('PTTL', s.fence)", 13},
	{"call('SET', base .. 'batch:' .. ARGV[4], answer, 'PX', GRANT)", "", 0},
	{"base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0\n        and", "base .. 'left:' .. tag .. ':' .. owner) == 0\n        and", 142},
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
		seed, noticed := m.shows, newPlay(m.shows, server).run(t, 25) != nil
		for next := uint64(0); next < 3000 && !noticed; next++ {
			seed, noticed = next, newPlay(next, server).run(t, 25) != nil
		}
		if !noticed {
			t.Errorf("nobody notices\n%s\ninstead of\n%s", m.instead, m.line)
			continue
		}
		t.Logf("noticed by sequence %d: %s", seed, strings.TrimSpace(m.line))
	}
}
