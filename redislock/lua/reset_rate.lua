-- reset_rate: deletes the state of a rate limit, so that its full burst is available. KEYS 1 the key
local had = redis.call('GET', KEYS[1])
if had and not string.match(had, '^%d+ %d+$') then return 'foreign' end
redis.call('DEL', KEYS[1])
return 'reset'
