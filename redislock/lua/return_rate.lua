-- return_rate: undoes a take unless something was granted since. KEYS: the key. ARGV: 1
-- the cost, 2 when the granted events ended then.
local had = redis.call('GET', KEYS[1])
local last, was = string.sub(had or '', 1, 16), tonumber(string.sub(had or '', 18))
if not tonumber(last) or not was or last + was ~= tonumber(ARGV[2]) then return 'late' end
local ahead = was - ARGV[1]
if ahead > 0 then
  redis.call('SET', KEYS[1], last .. ' ' .. ahead, 'PX', math.ceil(ahead / 1000))
else
  redis.call('DEL', KEYS[1])
end
return 'returned'
