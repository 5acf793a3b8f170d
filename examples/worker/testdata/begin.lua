-- KEYS: task, doing. ARGV: id, token. Returns how often the task was begun, 0 if refused.
-- Tokens stay below 2^53, so that Lua compares them exactly.
local task = redis.call('HMGET', KEYS[1], 'token', 'done')
if task[2] then
	redis.call('LREM', KEYS[2], 0, ARGV[1]) -- somebody put it back who did not know
	return 0
end
if tonumber(ARGV[2]) <= tonumber(task[1]) then
	return 0
end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'tries', 1)
