-- renew: extends an exclusive acquisition that still stands; confirm.lua does it for
-- shared ones. KEYS: lock. ARGV: 1 how the holder begins, 2 ttl.
local text = redis.pcall('GET', KEYS[1])
if type(text) ~= 'string' or string.sub(text, 1, #ARGV[1]) ~= ARGV[1] then return 'gone' end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'ok'
