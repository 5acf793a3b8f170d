-- The same for a shared lock without weights and a minimum hold: one that is free, or
-- that others share by the same limit, of whom none is over. ARGV: 7 the limit.
if ARGV[7] then
  local call, sub, lock, limit = redis.call, string.sub, KEYS[1], ARGV[7]
  local now = clock[1] .. sub('00000' .. clock[2], -6)
  local ms, ttl, tag, last = tonumber(sub(now, 1, 13)), tonumber(ARGV[5]), sub(KEYS[2], 7), both[2]
  local shared, meta, text, first = 'shared:' .. tag, 'meta:' .. tag, 'fencelock shared ' .. limit, not both[1]
  local room = first and (last or call('EXISTS', 'queue:' .. tag) == 0)
  if both[1] == text and last then
    local ends = call('ZRANGE', shared, 0, 0, 'WITHSCORES')[2]
    room = ends and tonumber(ends) > ms and (limit == '0' or call('ZCARD', shared) < tonumber(limit))
  end
  if room and (not last or sub(last, -2) == ' 0' and last < now) and (not first or call('SET', lock, text, 'PX', ttl, 'NX')) then
    if first then call('DEL', shared, meta) end -- holders of a lock that was taken away
    call('ZADD', shared, string.format('%d', ms + ttl), now)
    call('ZADD', meta, now, ARGV[2] .. ' ' .. now .. ' ' .. now .. ' ' .. ARGV[3])
    if first or call('PTTL', lock) < ttl then
      for i, key in ipairs({ shared, meta, lock }) do
        if i < 3 or not first then call('PEXPIRE', key, ttl) end
      end
    end
    call('SET', KEYS[2], now .. ' ' .. now .. ' - 0', 'PX', ARGV[6])
    return 'granted ' .. now .. ' ' .. now .. ' ' .. (first and now or call('ZRANGE', meta, 0, 0, 'WITHSCORES')[2])
  end
end
