-- The way of most first rounds, before anything else costs time: an exclusive
-- lock that is free and nobody waits for, on a node that has forgotten nothing,
-- by a clock that goes forward.
if ARGV[6] == 'x' and ARGV[9] ~= '1' and ARGV[3] ~= '0' then
  local fence = 'fence:{' .. KEYS[1] .. '}'
  local all = redis.call('MGET', KEYS[1], fence, KEYS[2])
  local stored, marker = all[2], all[3]
  if not all[1] and stored and string.sub(stored, -4) == ' - 0' and marker and
    string.sub(marker, -#ARGV[4] - 1) == ' ' .. ARGV[4] and
    redis.call('EXISTS', 'queue:{' .. KEYS[1] .. '}') == 0 and
    redis.call('PTTL', KEYS[2]) >= ARGV[1] / 2 then
    local _, at = string.find(redis.call('INFO', 'replication'), 'master_replid:' .. string.sub(marker, 1, 40), 1, true)
    local clock = redis.call('TIME')
    local now, last = clock[1] * 1000000 + clock[2], tonumber(string.match(stored, '^%d+'))
    if at and last <= now + 100000 then
      local token = math.max(last + 1, now, math.min(ARGV[8], now + math.min(500000, ARGV[3] * 500)))
      local text, since = string.format('%d', token), string.format('%d ', now)
      if redis.call('SET', KEYS[1], 'fencelock ' .. ARGV[5] .. ' ' .. text .. ' ' .. since .. ARGV[11], 'PX', ARGV[7], 'NX') then
        redis.call('SET', fence, text .. ' ' .. since .. '- 0', 'PX', ARGV[1])
        return 'granted ' .. text .. ' ' .. text
      end
    end
  end
end

