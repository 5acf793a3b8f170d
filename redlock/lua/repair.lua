-- repair: restores a lock that this node has lost while a majority kept it, unless the node has
-- stored a greater token since, which belongs to a later holder.
-- ARGV: 1 owner, 2 token, 3 mode, 4 ttl, 5 time until which it may be served, as for ask, 6 desc.
local owner, token, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]
loadFence()
local own, state = ownLease(owner)
if own then return 'ok' end
if late(owner, tonumber(ARGV[5])) then return 'late' end
if last > token or not (state == 'free' or state == 's' and mode == 's') then return 'taken' end
if not addHolder(owner, token, mode, ARGV[6], tonumber(ARGV[4]), state) then return 'taken' end
storeFence(token)
return 'ok'
