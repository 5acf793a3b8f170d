-- release: ends one acquisition and hands the lock over to the next waiters. The first step uses
-- the lock key alone, so that it works while a slot of a Cluster moves. The answer then ends with
-- "moving", and the client sends the release again until the second step works too.
-- KEYS 1 lock, 2 marker (only with a quarantine)
-- ARGV 1 base, 2 settings, 3 owner, 4 token, 5 id of this release: a copy that arrives twice gets
--      the same answer, 6 server time until which an attempt to acquire may still arrive, if one may
local lock, base, owner, token, id, late = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local own, text, tag = FORMAT .. owner .. ' ' .. token .. ' ', call('MGET', lock)[1], tagOf(lock)
local had = text and string.sub(text, 1, #own) == own
-- The common case: the lock was held exclusively by this owner, and nobody waits. waited is false
-- if this owner did not hold it exclusively (release.lua looks at shared holders), 0 or 1 for the
-- queue, or an error, which counts as a moving slot: the lock key is absent now.
local waited = had and call('DEL', lock) and redis.pcall('EXISTS', lock, base .. 'queue:' .. tag)
if waited == 0 and not late then
  call('SET', base .. 'left:' .. tag .. ':' .. owner, id, 'PX', GRANT)
  return 'ok '
end
