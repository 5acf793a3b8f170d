-- KEYS: the floor's, then the script's own. ARGV: token, floor, milliseconds that the
-- floor is kept or 0, then the script's own. Tokens are text, since a Lua number holds
-- no more than 53 bits.
local function from(n, list) -- unpack takes no more than 8,000
  local rest = {}
  for i = n, #list do rest[i - n + 1] = list[i] end
  return rest
end
local function less(a, b) return #a < #b or (#a == #b and a < b) end
local stored = redis.call('GET', KEYS[1]) or '0'
if not string.find(stored, '^%d+$') then
  return redis.error_reply('FENCEBAD ' .. KEYS[1] .. ' is not a floor')
end
if less(ARGV[1], stored) then return redis.error_reply('FENCESTALE ' .. stored) end
local floor = stored
if less(stored, ARGV[2]) then floor = ARGV[2] end
if ARGV[3] == '0' then -- also ends an expiry that a writer with another setting has set
  redis.call('SET', KEYS[1], floor)
else
  redis.call('SET', KEYS[1], floor, 'PX', ARGV[3])
end
return (function(KEYS, ARGV)
--SCRIPT
end)(from(2, KEYS), from(4, ARGV))
