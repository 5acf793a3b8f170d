-- return_rate: undoes a take, unless another one has been granted since. It may run twice.
-- KEYS 1 the key. ARGV 1 the cost; what the take wrote: 2 the time, 3 how far ahead
if redis.call('GET', KEYS[1]) ~= ARGV[2] .. ' ' .. ARGV[3] then return 'late' end
local ahead = ARGV[3] - ARGV[1]
if ahead > 0 then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ahead, 'PX', math.ceil(ahead / 1000))
else
  redis.call('DEL', KEYS[1])
end
return 'returned'
