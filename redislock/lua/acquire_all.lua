-- acquire_all: takes several names or none, exclusively, if all are free and
-- untouched.
-- KEYS: lock and fence of each. ARGV: 1 retention, 2 TTL, 3 until when it is
-- served, and for each how the holder begins and its description. Returns "taken"
-- and the time; "held", which one, for how many milliseconds, whether by another
-- program (f) and by whom; "late" and the time; or "slow" if only the acquire
-- script can tell.
if ARGV[3] < stamp then return 'late ' .. stamp end
local call, had, barred = redis.call, redis.call('MGET', unpack(KEYS)), {}
for i = 1, #KEYS, 2 do
  local holder, fence = had[i], KEYS[i + 1]
  if holder then
    local own = ARGV[i + 3]
    if i == 1 and string.sub(holder, 1, #own) == own then return 'taken ' .. string.match(holder, '^(%d+)', #own + 1) end -- it has arrived before
    if string.sub(holder, 1, 17) == 'fencelock shared ' then return 'slow' end
    local why = string.sub(holder, 1, 10) == 'fencelock ' and '-' or 'f'
    return string.format('held %d %d %s %s', (i + 1) / 2, call('PTTL', KEYS[i]), why, string.sub(holder, 1, 800))
  end
  local last, bar = string.match(had[i + 1] or '', '^(.- 0)( ?b?%d*)$')
  if not untouched(had[i + 1] and (last or ''), fence) then return 'slow' end
  local owner = bar and bar ~= '' and string.match(ARGV[i + 3], '(%S+) $')
  if owner and tonumber(call('ZSCORE', 'alive:' .. string.sub(fence, 7), owner) or 0) < 0 then return 'late ' .. stamp end
  barred[i] = bar or ''
end
local text = stamp .. ' ' .. stamp .. ' '
for i = 1, #KEYS, 2 do
  if not call('SET', KEYS[i], ARGV[i + 3] .. text .. ARGV[i + 4], 'PX', ARGV[2], 'NX') then -- a key of another type
    for k = 1, i - 1, 2 do call('DEL', KEYS[k]) end
    return 'slow'
  end
end
for i = 1, #KEYS, 2 do call('SET', KEYS[i + 1], text .. '- 0' .. barred[i], 'PX', ARGV[1]) end
return 'taken ' .. stamp
