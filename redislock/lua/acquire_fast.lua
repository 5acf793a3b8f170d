-- acquire: grants the lock, queues the request, or returns who holds the lock.
-- KEYS 1 lock, 2 marker (only with a quarantine)
-- ARGV 1 base, 2 settings, 3 owner, 4 description, 5 server time after which the request must do
--      nothing, 6 letters: w the client waits, p it wants its place in the queue; behind them the
--      client's own time, an integer. If the request
--      is exclusive and has neither a minimum hold nor a quarantine: 7 TTL, 8 retention.
if stamp > ARGV[5] then return 'late ' .. stamp end
local lock, base, owner, ttl = KEYS[1], ARGV[1], ARGV[3], ARGV[7]
local tag = tagOf(lock)
-- The common case: nobody holds the lock or waits for it, no minimum hold runs, this owner has
-- not released yet, and the slot does not move (a moving slot makes EXISTS fail).
if ttl and redis.pcall('EXISTS', lock, base .. 'queue:' .. tag, base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0 then
  local token = mint(base .. 'fence:' .. tag, stamp, ARGV[8])
  call('SET', lock, FORMAT .. owner .. ' ' .. token .. ' ' .. ARGV[4], 'PX', ttl)
  return 'taken ' .. stamp .. ' ' .. token
end
