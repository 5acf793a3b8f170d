-- release: ends an owner's lock on this node.
-- ARGV: 1 owner, 2 its token, "0" if the owner is enough, 3 "0" to say nothing,
-- "1" to keep the name for those who wait, "2" to tell them as well; and, where
-- the owner may still have a request on its way, 4 until when, 5 "1" if its take
-- failed, and its minimum hold with it.
local by = tonumber(ARGV[4] or 0)
if by > now then
  redis.call('SET', fence .. '/' .. ARGV[1], '', 'NX', 'PX', 1)
  extend(fence .. '/' .. ARGV[1], (by - now) / 1000 + 1)
end
local own, state = ownLease(ARGV[1])
if own and ARGV[2] ~= '0' and own ~= tonumber(ARGV[2]) then return 'gone' end
if own then
  free(ARGV[1], state)
  if ARGV[5] == '1' and state == 'x' then
    loadFence()
    notbefore = 0
    store(now)
  end
end
-- The node may have missed this lock, and waiters listen here nevertheless.
if ARGV[3] ~= '0' then reserveForWaiter(ARGV[3] == '2') end
return own and 'ok' or 'gone'
