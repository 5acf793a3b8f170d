-- record: a version, a space and a value. KEYS: 1 the record. ARGV: nothing to read it;
-- otherwise 1 the version it must have, empty if there must be none, 2 the version it
-- gets, 3 for how many milliseconds, 0 for ever, 4 the value. It may run again.
local now = redis.call('GET', KEYS[1])
if not ARGV[1] then return now or '' end
local version = now and string.match(now, '^%S*') or ''
if version == ARGV[2] then return 'ok' end
if version ~= ARGV[1] then return 'conflict' end
if ARGV[3] == '0' then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[4])
else
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[4], 'PX', ARGV[3])
end
return 'ok'
