-- raise: the second round of a take. It gives the holder the token on this node,
-- and stores it. Shared holders stand beside one another, so there a token that
-- may be another's is refused: no two have the same.
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
