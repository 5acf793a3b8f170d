-- note: notes names that List has to look at, and for how long. Those whose time is
-- over leave, some at a time: the first write is one that a full memory allows.
-- KEYS: the index. ARGV: pairs of milliseconds and a name.
local function int(n) return string.format('%d', n) end
local clock, index = redis.call('TIME'), KEYS[1]
local ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREM', index, '', unpack(redis.call('ZRANGEBYSCORE', index, '-inf', int(ms), 'LIMIT', 0, 2000)))
local pairs, life = {}, redis.call('PTTL', index)
for i = 1, #ARGV, 2 do
  pairs[i], pairs[i + 1], life = int(ms + ARGV[i]), ARGV[i + 1], math.max(life, ARGV[i])
end
redis.call('ZADD', index, 'GT', unpack(pairs))
redis.call('PEXPIRE', index, int(life))
return 'ok'
