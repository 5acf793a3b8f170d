-- The same for a request that waits behind a lock that was handed over a moment ago,
-- with nobody suspended and a queue that lives on.
if both[1] and both[2] and string.sub(ARGV[1], 1, 2) == 'w ' then
  local granted, lasts = string.match(both[2], '^%d+ (%d+) [^-]%S* %d+ u(%d+) m%S+ q$')
  local held = granted and string.match(both[1], '^fencelock %S+ %d+ %d+ %S+ %a %S+ (%d+) ')
  local own = 'fencelock ' .. ARGV[2] .. ' ' -- it has arrived before
  local left = held and string.sub(both[1], 1, #own) ~= own and math.min(2000, held) - math.floor((stamp - granted) / 1000)
  if left and left > 0 and granted <= stamp and
      lasts >= string.format('%d', math.floor(stamp / 1000) + 3 * math.min(20000, string.match(ARGV[3], '^%S+ %a %S+ (%d+) '))) then
    local queue = 'queue:' .. string.sub(KEYS[2], 7)
    local newest = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
    local ticket = newest and newest >= stamp and string.format('%d', newest + 1) or stamp
    if redis.call('ZADD', queue, 'NX', ticket, ARGV[2] .. ' ' .. ARGV[3]) == 0 then
      ticket = string.format('%d', redis.call('ZSCORE', queue, ARGV[2] .. ' ' .. ARGV[3]))
    end
    if not newest then redis.call('PEXPIREAT', queue, lasts) end
    return 'queued ' .. stamp .. ' ' .. ticket .. ' 0 ' .. left .. ' - ' .. both[1]
  end
end
