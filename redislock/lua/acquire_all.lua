-- acquire_all: takes several names or none, exclusively, if all are free and
-- nobody waits for any; acquire_fast.lua decides alike about one.
-- KEYS: lock and fence of each. ARGV: 1 retention, 2 TTL, and for each how the
-- holder begins and its description. Returns "taken" and the time; "held", which
-- one, for how many milliseconds, whether by another program (f) and by whom; or
-- "slow" if only the acquire script can tell.
local names, had = #KEYS / 2, redis.call('MGET', unpack(KEYS))
local clock = redis.call('TIME')
local now = string.format('%d%06d', clock[1], clock[2])
for i = 1, names do
  local lock, fence, holder, last = KEYS[2 * i - 1], KEYS[2 * i], had[2 * i - 1], had[2 * i]
  if holder then
    if string.sub(holder, 1, 17) == 'fencelock shared ' then return 'slow' end
    local why = string.sub(holder, 1, 10) == 'fencelock ' and '-' or 'f'
    return string.format('held %d %d %s %s', i, redis.call('PTTL', lock), why, string.sub(holder, 1, 800))
  end
  if last and (string.sub(last, -2) ~= ' 0' or string.sub(last, 1, 17) >= now .. ' ') or
      not last and redis.call('EXISTS', lock, 'queue:' .. string.sub(fence, 7)) > 0 then
    return 'slow'
  end
end
local text = now .. ' ' .. now .. ' '
for i = 1, names do
  local value = ARGV[2 * i + 1] .. text .. ARGV[2 * i + 2]
  if not redis.call('SET', KEYS[2 * i - 1], value, 'PX', ARGV[2], 'NX') then -- a key of another type
    for k = 1, i - 1 do redis.call('DEL', KEYS[2 * k - 1]) end
    return 'slow'
  end
end
for i = 1, names do redis.call('SET', KEYS[2 * i], text .. '- 0', 'PX', ARGV[1]) end
return 'taken ' .. now
