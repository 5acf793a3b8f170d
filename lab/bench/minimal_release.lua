-- KEYS: lock, queue, token. ARGV: owner, TTL.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local next = redis.call('LPOP', KEYS[2])
if not next then return redis.call('DEL', KEYS[1]) end
local owner, channel = string.match(next, '^(%S+) (%S+)$')
redis.call('SET', KEYS[1], owner, 'PX', ARGV[2])
redis.call('INCR', KEYS[3])
redis.call('PUBLISH', channel, owner)
return 1
