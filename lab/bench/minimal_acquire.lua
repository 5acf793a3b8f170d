-- KEYS: lock, queue, token. ARGV: owner, channel, TTL.
if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3], 'NX') then
  return 'granted ' .. redis.call('INCR', KEYS[3])
end
redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 'queued'
