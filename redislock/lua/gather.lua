-- Many acquires and releases of the common kinds in one script, which then share
-- its cost: see acquire_fast.lua and release_fast.lua, which decide alike.
-- KEYS: lock and fence of each. ARGV: 1 retention, 2 a letter for each: a to
-- acquire, which takes three more arguments (how the holder begins, its
-- description, the TTL), and r to release, which takes one (how the holder
-- begins); 3 until when acquires are served. Returns the time and a letter for
-- each: t taken, o released, g gone, l late, s for what has to go the slow way. All locks are read first and freed last, so
-- that two errands about one name do not see half of one another.
local call, sub = redis.call, string.sub
local had = call('MGET', unpack(KEYS))
local clock = call('TIME')
local now = string.format('%d%06d', clock[1], clock[2])
local text = now .. ' ' .. now .. ' '
local fence, newest, life = text .. '- 0', now .. ' ', ARGV[1]
local said, freed, at = {}, {}, 4
for i = 1, #ARGV[2] do
  local k = 2 * i
  local holder, last = had[k - 1], had[k]
  if string.byte(ARGV[2], i) == 97 then -- a
    said[i] = ARGV[3] < now and 'l' or 's'
    if said[i] == 's' and not holder and (last and sub(last, -2) == ' 0' and sub(last, 1, 17) < newest or
        not last and call('EXISTS', 'queue:' .. sub(KEYS[k], 7)) == 0) and
        call('SET', KEYS[k - 1], ARGV[at] .. text .. ARGV[at + 1], 'PX', ARGV[at + 2], 'NX') then
      call('SET', KEYS[k], fence, 'PX', life)
      said[i] = 't'
    end
    at = at + 3
  else
    local own = ARGV[at]
    if not holder or sub(holder, 1, #own) ~= own then
      said[i] = 'g'
    elseif last and sub(last, -2) ~= ' q' then
      said[i], freed[#freed + 1] = 'o', KEYS[k - 1]
    else
      said[i] = 's'
    end
    at = at + 1
  end
end
if #freed > 0 then call('DEL', unpack(freed)) end
return now .. ' ' .. table.concat(said)
