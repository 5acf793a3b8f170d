-- acquire: takes a name, joins its queue, or says who is in the way.
-- KEYS 1 lock, 2 marker (with a quarantine only)
-- ARGV 1 base, 2 settings, 3 owner, 4 description, 5 until when it is served, 6 letters: w it
--      waits, p it asks for its place; and if it is exclusive, without a minimum hold and a
--      quarantine: 7 TTL, 8 retention.
if stamp > ARGV[5] then return 'late ' .. stamp end
local lock, base, owner, ttl = KEYS[1], ARGV[1], ARGV[3], ARGV[7]
local tag = tagOf(lock)
-- Most acquires: nobody holds it or waits, no minimum hold runs, this owner has not let go,
-- and the slot does not move.
if ttl and redis.pcall('EXISTS', lock, base .. 'queue:' .. tag, base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0 then
  local token = mint(base .. 'fence:' .. tag, stamp, ARGV[8])
  call('SET', lock, FORMAT .. owner .. ' ' .. token .. ' ' .. ARGV[4], 'PX', ttl)
  return 'taken ' .. stamp .. ' ' .. token
end
