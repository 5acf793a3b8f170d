-- KEYS: task, doing, results. ARGV: id, token, result. Returns 1, or 0 if refused.
local task = redis.call('HMGET', KEYS[1], 'token', 'done')
if task[2] or tonumber(ARGV[2]) < tonumber(task[1]) then
	return 0
end
redis.call('HSET', KEYS[1], 'token', ARGV[2], 'done', 1)
redis.call('RPUSH', KEYS[3], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
redis.call('LREM', KEYS[2], 0, ARGV[1])
return 1
