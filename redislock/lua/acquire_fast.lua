-- The way of most acquires, before anything else costs time: an exclusive lock
-- that is free and nobody waits for, without a minimum hold and a quarantine, by
-- a clock that goes forward. ARGV: 6 the TTL, if the request is such a one.
if ARGV[6] then
  local both = redis.call('MGET', KEYS[1], KEYS[2])
  local last = both[2]
  if not both[1] and (last and string.sub(last, -2) == ' 0' or not last and redis.call('EXISTS', 'queue:' .. string.sub(KEYS[2], 7)) == 0) then
    local clock = redis.call('TIME')
    local now = string.format('%d%06d', clock[1], clock[2])
    if not last or string.sub(last, 1, 17) < now .. ' ' then
      local text = now .. ' ' .. now .. ' '
      if redis.call('SET', KEYS[1], 'fencelock ' .. ARGV[3] .. ' ' .. text .. ARGV[4], 'PX', ARGV[6], 'NX') then
        redis.call('SET', KEYS[2], text .. '- 0', 'PX', ARGV[1])
        return 'taken ' .. now
      end
    end
  end
end

