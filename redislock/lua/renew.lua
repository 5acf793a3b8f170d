-- renew: extends an exclusive lease, if the owner still holds it with this token. confirm does so for
-- shared ones. KEYS 1 lock. ARGV 1 "fencelock:2 OWNER TOKEN ", 2 TTL, 3 optional: return what was left
local text = redis.call('MGET', KEYS[1])[1]
if not text or string.sub(text, 1, #ARGV[1]) ~= ARGV[1] then return 'gone' end
local left = ARGV[3] and ' ' .. redis.call('PTTL', KEYS[1]) or ''
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'ok' .. left
