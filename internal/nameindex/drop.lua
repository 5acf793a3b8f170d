-- drop: takes names out of the index that were free a moment ago.
-- KEYS: the index. ARGV: until when, in microseconds; then the names.
local clock = redis.call('TIME')
if clock[1] * 1000000 + clock[2] > tonumber(ARGV[1]) then return 'late' end
redis.call('ZREM', KEYS[1], unpack(ARGV, 2))
return 'ok'
