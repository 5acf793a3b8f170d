-- The same for a lock whose next waiter wants it for itself, joined a short while ago
-- and listens, with nobody suspended and nobody told of a longer lease.
if not ARGV[3] and both[2] then
  local retention, channel = string.match(ARGV[1], '^%S+ (%d+) 1 0 (.*)$')
  local last, lasts = string.match(both[2], '^(%d+) %d+ %S+ 0 u(%d+) m%- q$')
  local queue, now = 'queue:' .. string.sub(KEYS[2], 7), clock[1] .. string.sub('00000' .. clock[2], -6)
  local head = retention and last and last < now and redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  local owner, desc, client, ttl = string.match(head and head[1] or '', '^(%S+) ((%S+) x %S+ (%d+) .*)$')
  if owner and head[2] + 3000 * math.min(20000, ttl) > tonumber(now) then
    local life = math.min(2000, ttl)
    local grant = now .. ' ' .. now .. ' ' .. now .. ' ' .. life .. ' x ' .. KEYS[1]
    redis.call('ZREM', queue, head[1]) -- a server that takes no writes must not have told anybody
    redis.set_repl(redis.REPL_NONE) -- see S.tell
    local heard = redis.pcall('PUBLISH', channel .. client, 'grant ' .. owner .. ' ' .. grant)
    redis.set_repl(redis.REPL_ALL)
    if type(heard) == 'number' and heard > 0 then
      redis.call('SET', KEYS[1], 'fencelock ' .. owner .. ' ' .. now .. ' ' .. now .. ' ' .. desc, 'PX', life)
      redis.call('SET', KEYS[2], now .. ' ' .. now .. ' ' .. client .. ' 0 u' .. lasts .. ' m- q', 'PXAT', math.max(math.floor(now / 1000) + retention, lasts))
      return 'ok '
    end
    redis.call('ZADD', queue, head[2], head[1])
    redis.call('PEXPIREAT', queue, lasts)
  end
end
