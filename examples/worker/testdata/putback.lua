-- KEYS: doing, todo. ARGV: id. A task that was done meanwhile is in neither list.
if redis.call('LREM', KEYS[1], 0, ARGV[1]) > 0 then
	redis.call('LPUSH', KEYS[2], ARGV[1]) -- it has waited long enough
end
return 1
