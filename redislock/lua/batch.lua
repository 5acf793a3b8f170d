-- Many acquires and releases of the common kinds in one script, which then share its
-- cost. KEYS: lock and fence of each. ARGV: 1 retention, 2 a letter for each: a to
-- acquire, which takes three more arguments (how the holder begins, its description,
-- the TTL), and r to release, which takes one (how the holder begins); 3 until when
-- acquires are served. Returns the time and a letter for each: t taken, o released,
-- g gone, l late, s for what has to go the slow way. All locks are read first and
-- freed last, so that two operations about one name do not see half of one another.
local call, had, text = redis.call, redis.call('MGET', unpack(KEYS)), stamp .. ' ' .. stamp .. ' '
local said, freed, at = {}, {}, 4
for i = 1, #ARGV[2] do
  local k = 2 * i
  local holder, last = had[k - 1], had[k]
  said[i] = 's'
  if string.byte(ARGV[2], i) == 97 then -- a
    if ARGV[3] < stamp then
      said[i] = 'l'
    elseif not holder and untouched(last, KEYS[k]) and
        call('SET', KEYS[k - 1], ARGV[at] .. text .. ARGV[at + 1], 'PX', ARGV[at + 2], 'NX') then
      call('SET', KEYS[k], text .. '- 0', 'PX', ARGV[1])
      said[i] = 't'
    end
    at = at + 3
  else
    local own = ARGV[at]
    if not holder or string.sub(holder, 1, #own) ~= own then
      said[i] = 'g'
    elseif last and string.sub(last, -2) ~= ' q' then
      said[i], freed[#freed + 1] = 'o', KEYS[k - 1]
    end
    at = at + 1
  end
end
if #freed > 0 then call('DEL', unpack(freed)) end
return stamp .. ' ' .. table.concat(said)
