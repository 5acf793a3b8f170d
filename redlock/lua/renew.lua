-- renew: extends an owner's lock on this node. If the node has stored a token of its own before the
-- attempt was decided, it is replaced by that of the acquisition. Otherwise requests that share the
-- lock would get too high a floor.
-- ARGV: 1 owner, 2 token, 3 "1" to compare the owner only, 4 ttl.
local owner, token, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local own, state = ownLease(owner)
if not own then return state == 'free' and 'free' or 'taken' end
if own ~= token then
  if ARGV[3] ~= '1' then return 'taken' end
  retoken(owner, token, state)
end
rearm(owner, ttl, state)
return 'ok ' .. server()
