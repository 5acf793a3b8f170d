-- return_rate: undoes a take unless something was granted since. KEYS: the key. ARGV: 1
-- the cost; what the take left there: 2 the time, 3 how far ahead. So it may come again.
if redis.call('GET', KEYS[1]) ~= ARGV[2] .. ' ' .. ARGV[3] then return 'late' end
local ahead = ARGV[3] - ARGV[1]
if ahead > 0 then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ahead, 'PX', math.ceil(ahead / 1000))
else
  redis.call('DEL', KEYS[1])
end
return 'returned'
