-- The same for a shared lock without weights and a minimum hold: one that is free, or
-- that others share by the same limit, of whom none is over. ARGV: 7 the limit.
if ARGV[7] then
  local call, lock, limit, last = redis.call, KEYS[1], ARGV[7], both[2]
  local ms, ttl, tag = tonumber(string.sub(stamp, 1, 13)), tonumber(ARGV[5]), string.sub(KEYS[2], 7)
  local shared, meta, text, first = 'shared:' .. tag, 'meta:' .. tag, 'fencelock shared ' .. limit, not both[1]
  local room = first
  if last and both[1] == text then
    local ends = call('ZRANGE', shared, 0, 0, 'WITHSCORES')[2]
    room = ends and tonumber(ends) > ms and (limit == '0' or call('ZCARD', shared) < tonumber(limit))
  end
  for _, who in ipairs(room and not first and call('ZREVRANGE', meta, 0, 7) or {}) do -- it has arrived before
    if string.sub(who, 1, #ARGV[2] + 1) == ARGV[2] .. ' ' then room = false end
  end
  if room and untouched(last, KEYS[2]) and (not first or call('SET', lock, text, 'PX', ttl, 'NX')) then
    if first then call('DEL', shared, meta) end -- holders of a lock that was taken away
    call('ZADD', shared, string.format('%d', ms + ttl), stamp)
    call('ZADD', meta, stamp, ARGV[2] .. ' ' .. stamp .. ' ' .. stamp .. ' ' .. ARGV[3])
    local life = first and ttl or math.max(call('PTTL', lock), ttl)
    for _, key in ipairs({ shared, meta, not first and lock or nil }) do call('PEXPIRE', key, life) end
    call('SET', KEYS[2], stamp .. ' ' .. stamp .. ' - 0', 'PX', ARGV[6])
    return 'granted ' .. stamp .. ' ' .. stamp .. ' ' .. (first and stamp or call('ZRANGE', meta, 0, 0, 'WITHSCORES')[2])
  end
end
