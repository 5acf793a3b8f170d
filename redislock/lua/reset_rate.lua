-- reset_rate: forgets what was granted of a key. KEYS: the key.
local had = redis.call('GET', KEYS[1])
if had and not string.match(had, '^%d+ %d+$') then return 'foreign' end
redis.call('DEL', KEYS[1])
return 'reset'
