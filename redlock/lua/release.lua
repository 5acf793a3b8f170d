-- release: ends an owner's lock on this node.
-- ARGV: 1 owner, 2 its token ("0" to compare the owner only), 3 "0" to do nothing else, "1" to
-- reserve the name for waiters, "2" to notify them too; and, if a request of the owner may still be
-- on its way: 4 until when, 5 "1" if the attempt failed, to end its minimum hold too.
-- Replies: "ok", "freed" if an earlier release has ended the lock, or "gone".
local bar, by = fence .. '/' .. ARGV[1], tonumber(ARGV[4] or 0)
local own, state = ownLease(ARGV[1])
if own and ARGV[2] ~= '0' and own ~= tonumber(ARGV[2]) then return 'gone' end
local again = not own and redis.call('GET', bar) == 'freed'
if own then
  free(ARGV[1], state)
  redis.pcall('SET', bar, 'freed', 'PX', FREED)
  if ARGV[5] == '1' then
    loadFence()
    notbefore = 0
    store(now)
  end
end
if by > now then
  redis.call('SET', bar, '', 'NX', 'PX', 1)
  extend(bar, (by - now) / 1000 + 1)
end
-- Do this even if the node did not have the lock, because waiters may listen to this node.
if ARGV[3] ~= '0' and not again then reserveForWaiter(ARGV[3] == '2') end
return own and 'ok' or again and 'freed' or 'gone'
