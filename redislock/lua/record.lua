-- record: reads a record, or replaces it if its version is the expected one (compare-and-swap). The
-- record is a version, a space and a value. KEYS 1 the record. ARGV none to read it; otherwise
-- 1 the expected version, empty if the record must not exist, 2 a prefix that the versions of all
-- attempts of this swap share, 3 the life in ms, 0 without end, 4 the value, 5 the number of the
-- attempt. Returns the new version, or "conflict". If an earlier attempt succeeded and still stands,
-- its version is returned and written again: WAIT counts only writes of its own connection.
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
