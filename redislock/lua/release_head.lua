-- release: ends one acquisition and lets in whoever is next. The first is done with the lock
-- key alone, so that it works while a slot of a Cluster moves; then it says "moving", and what
-- is left to do is done by another call.
-- KEYS 1 lock, 2 marker (with a quarantine only)
-- ARGV 1 base, 2 settings, 3 owner, 4 token, 5 which release it is, which is told the same if it
--      comes twice, 6 until when a late try must not be served, if one may come
local lock, base, owner, token, id, late = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local own, text, tag = FORMAT .. owner .. ' ' .. token .. ' ', call('MGET', lock)[1], tagOf(lock)
local had = text and string.sub(text, 1, #own) == own
-- Most releases: an exclusive one that stood, and nobody waits. A slot that moves refuses to
-- look for several keys of which one is not there, as the lock is now.
local waited = had and call('DEL', lock) and redis.pcall('EXISTS', lock, base .. 'queue:' .. tag)
if waited == 0 and not late then
  call('SET', base .. 'left:' .. tag .. ':' .. owner, id, 'PX', GRANT)
  return 'ok '
end
