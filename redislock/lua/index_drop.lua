-- index_drop: takes names out of the index that were free a moment ago.
-- KEYS: the index. ARGV: until when, in microseconds; then the names.
if stamp > ARGV[1] then return 'late' end
redis.call('ZREM', KEYS[1], unpack(ARGV, 2))
return 'ok'
