-- renew: extends one acquisition that still stands.
-- KEYS: lock, and if it is shared, shared and meta. ARGV: 1 owner, 2 token, 3 mode, 4 ttl.
local lock, shared, meta = unpack(KEYS)
local owner, token, mode, ttl = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local own = owner .. ' ' .. token .. ' '
local text = redis.pcall('GET', lock)
if type(text) ~= 'string' then return 'gone' end
if mode == 'x' then
  local value = 'fencelock ' .. own
  if string.sub(text, 1, #value) ~= value then return 'gone' end
  redis.call('PEXPIRE', lock, ARGV[4])
  return 'ok'
end
local clock = redis.call('TIME')
local ms = math.floor((clock[1] * 1000000 + clock[2]) / 1000)
local ends = redis.call('ZSCORE', shared, token)
local who = redis.call('ZRANGEBYSCORE', meta, token, token)[1]
if not string.match(text, '^fencelock shared %d') or not ends or tonumber(ends) <= ms or
  not who or string.sub(who, 1, #own) ~= own then
  return 'gone'
end
-- A full memory refuses ZADD, unless it follows a write it does not refuse.
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, string.format('%d', math.max(redis.call('PTTL', key), ttl)))
end
redis.call('ZADD', shared, string.format('%d', ms + ttl), token)
return 'ok'
