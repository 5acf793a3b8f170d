-- The same for a lock that nobody waits for any more, or whose next waiter wants it for
-- itself, joined a short while ago and listens, with nobody suspended and nobody else
-- told of a longer lease.
if not ARGV[3] and both[2] then
  local retention, channel = string.match(ARGV[1], '^%S+ (%d+) 1 0 (.*)$')
  local rest, last, lasts, told = string.match(both[2], '^((%d+) %d+ %S+ 0) u(%d+) m(%S+) q$')
  local queue = 'queue:' .. string.sub(KEYS[2], 7)
  local head = retention and last and last < stamp and redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  if head and not head[1] then
    redis.call('DEL', KEYS[1])
    redis.call('SET', KEYS[2], rest, 'PXAT', math.floor(stamp / 1000) + retention)
    return 'ok '
  end
  local owner, desc, client, ttl = string.match(head and head[1] or '', '^(%S+) ((%S+) x %S+ (%d+) .*)$')
  -- What is taken out may have to be put back, which wants to know how long the queue lives.
  if owner and (told == '-' or told == client) and lasts * 1000 > tonumber(stamp) and head[2] + 3000 * math.min(20000, ttl) > tonumber(stamp) then
    local life = math.min(2000, ttl)
    local grant = owner .. ' ' .. stamp .. ' ' .. stamp .. ' '
    redis.call('ZREM', queue, head[1]) -- a server that takes no writes must not have told anybody
    redis.set_repl(redis.REPL_NONE) -- see S.tell
    local heard = redis.pcall('PUBLISH', channel .. client, 'grant ' .. grant .. stamp .. ' ' .. life .. ' x ' .. KEYS[1])
    redis.set_repl(redis.REPL_ALL)
    if type(heard) == 'number' and heard > 0 then
      redis.call('SET', KEYS[1], 'fencelock ' .. grant .. desc, 'PX', life)
      redis.call('SET', KEYS[2], stamp .. ' ' .. stamp .. ' ' .. client .. ' 0 u' .. lasts .. ' m- q', 'PXAT', math.max(math.floor(stamp / 1000) + retention, lasts))
      return 'ok '
    end
    redis.call('ZADD', queue, head[2], head[1])
    redis.call('PEXPIREAT', queue, lasts)
  end
end
