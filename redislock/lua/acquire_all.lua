-- acquire_all: takes several names or none, exclusively, if all are free and
-- nobody waits for any; acquire_fast.lua decides alike about one.
-- KEYS: lock and fence of each. ARGV: 1 retention, 2 TTL, 3 until when it is
-- served, and for each how the holder begins and its description. Returns "taken"
-- and the time; "held", which one, for how many milliseconds, whether by another
-- program (f) and by whom; "late" and the time; or "slow" if only the acquire
-- script can tell.
local names, had, barred = #KEYS / 2, redis.call('MGET', unpack(KEYS)), {}
local clock = redis.call('TIME')
local now = string.format('%d%06d', clock[1], clock[2])
if ARGV[3] < now then return 'late ' .. now end
for i = 1, names do
  local lock, fence, holder, last = KEYS[2 * i - 1], KEYS[2 * i], had[2 * i - 1], had[2 * i]
  if holder then
    if string.sub(holder, 1, 17) == 'fencelock shared ' then return 'slow' end
    local why = string.sub(holder, 1, 10) == 'fencelock ' and '-' or 'f'
    return string.format('held %d %d %s %s', i, redis.call('PTTL', lock), why, string.sub(holder, 1, 800))
  end
  local tag = string.sub(fence, 7)
  barred[i] = last and string.match(last, '^%d+ %d+ %S+ 0( ?b?%d*)$') or ''
  if last and (string.sub(last, -2 - #barred[i], -1 - #barred[i]) ~= ' 0' or string.sub(last, 1, 17) >= now .. ' ') or
      not last and redis.call('EXISTS', lock, 'queue:' .. tag) > 0 then
    return 'slow'
  end
  local owner = barred[i] ~= '' and string.match(ARGV[2 * i + 2], '(%S+) $')
  if owner and tonumber(redis.call('ZSCORE', 'alive:' .. tag, owner) or 0) < 0 then return 'late ' .. now end
end
local text = now .. ' ' .. now .. ' '
for i = 1, names do
  local value = ARGV[2 * i + 2] .. text .. ARGV[2 * i + 3]
  if not redis.call('SET', KEYS[2 * i - 1], value, 'PX', ARGV[2], 'NX') then -- a key of another type
    for k = 1, i - 1 do redis.call('DEL', KEYS[2 * k - 1]) end
    return 'slow'
  end
end
for i = 1, names do redis.call('SET', KEYS[2 * i], text .. '- 0' .. barred[i], 'PX', ARGV[1]) end
return 'taken ' .. now
