-- raise: the second round of an attempt. It replaces the holder's token on this node, and stores
-- the minimum hold. For shared holders a token that may belong to another one is refused, so that
-- tokens are unique.
-- ARGV: 1 owner, 2 token, 3 minimum hold in milliseconds.
local owner, token, minhold = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
loadFence()
local own, state = ownLease(owner)
if not own then return 'gone' end
if own ~= token then
  if state == 's' and token <= last then return 'low' end
  retoken(owner, token, state)
end
if minhold > 0 then notbefore = math.max(notbefore, now + minhold * 1000) end
if own ~= token or minhold > 0 then storeFence(token) end
return 'ok ' .. server()
