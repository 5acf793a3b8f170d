-- record: a version, a space and a value. KEYS: 1 the record. ARGV: nothing to read it;
-- otherwise 1 the version it must have, empty if there must be none, 2 how the versions
-- begin that it gets from any try of this swap, 3 for how many milliseconds, 0 for ever,
-- 4 the value, 5 the number of the try. It answers with the version: that of an earlier
-- try, if it was carried out and stands. That is written once more: WAIT heeds only what
-- its own connection has written.
local now = redis.call('GET', KEYS[1])
if not ARGV[1] then return now or '' end
local version = now and string.match(now, '^%S*') or ''
if string.sub(version, 1, #ARGV[2]) ~= ARGV[2] then
  if version ~= ARGV[1] then return 'conflict' end
  version = ARGV[2] .. '.' .. ARGV[5]
end
if ARGV[3] == '0' then
  redis.call('SET', KEYS[1], version .. ' ' .. ARGV[4])
else
  redis.call('SET', KEYS[1], version .. ' ' .. ARGV[4], 'PX', ARGV[3])
end
return version
