-- batch: many uncontended acquires and releases, exclusive and of different names, in one script,
-- which then share its cost. What is not so is asked again alone.
-- KEYS the lock of each. ARGV 1 base, 2 retention, 3 until when acquires are served, 4 a letter for
-- each: a (then owner, description and TTL) or r (then owner, token and which release it is). Returns the time and a
-- letter for each: t taken (the token is the time), o released, s to be asked alone.
local base, said, at = ARGV[1], {}, 5
for i, lock in ipairs(KEYS) do
  local tag, acquires, owner = tagOf(lock), string.sub(ARGV[4], i, i) == 'a', ARGV[at]
  local left = base .. 'left:' .. tag .. ':' .. owner
  said[i] = 's'
  if acquires then
    if stamp <= ARGV[3] and call('EXISTS', lock, base .. 'queue:' .. tag, base .. 'closed:' .. tag, left) == 0
        and mint(base .. 'fence:' .. tag, stamp, ARGV[2]) == stamp then
      call('SET', lock, FORMAT .. owner .. ' ' .. stamp .. ' ' .. ARGV[at + 1], 'PX', ARGV[at + 2])
      said[i] = 't'
    end
  else
    local own = FORMAT .. owner .. ' ' .. ARGV[at + 1] .. ' '
    if string.sub(call('MGET', lock)[1] or '', 1, #own) == own and call('EXISTS', base .. 'queue:' .. tag) == 0 then
      call('DEL', lock)
      call('SET', left, ARGV[at + 2], 'PX', GRANT)
      said[i] = 'o'
    end
  end
  at = at + 3
end
return stamp .. ' ' .. table.concat(said)
