-- The fast path for most first rounds: an exclusive lock that is free and has no waiters, on a node
-- that has not lost its data, for a client whose proposal can be the token. Numbers stay texts.
if not ARGV[6] and QUARANTINE > 0 then
  local lock = KEYS[1]
  local fence = 'fence:{' .. lock .. '}'
  local all = redis.call('MGET', lock, fence, MARKER, fence .. '/' .. ARGV[1])
  local stored, marker = all[2], all[3]
  if not all[1] and not all[4] and stored and marker and string.sub(stored, -4) == ' - 0' and
    redis.call('EXISTS', 'queue:{' .. lock .. '}') == 0 then
    local known, longest, since, nodes = string.match(marker, '^(%x+) (%d+) %x+ (%d+) (%S+)$')
    local clock, token = redis.call('TIME'), ARGV[3]
    local now, proposed = clock[1] * 1000000 + clock[2], tonumber(token)
    if nodes == NODES and tonumber(longest) >= QUARANTINE and now - since * 1000 < REFRESH * 1000 and now <= tonumber(ARGV[4]) and
      proposed >= now and proposed <= now + AHEAD and proposed > tonumber(string.match(stored, '^%d+')) and
      string.find(redis.call('INFO', 'replication'), 'master_replid:' .. known, 1, true) then
      local text = clock[1] .. string.sub('00000' .. clock[2], -6)
      if redis.call('SET', lock, 'fencelock ' .. ARGV[1] .. ' ' .. token .. ' ' .. text .. ' ' .. ARGV[5], 'PX', ARGV[2], 'NX') then
        redis.call('SET', fence, token .. ' ' .. text .. ' - 0', 'PX', RETENTION)
        return 'granted ' .. text .. ' ' .. string.sub(known, 1, 16) .. ' ' .. token .. ' ' .. token
      end
    end
  end
end

