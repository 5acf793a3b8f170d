-- repair: puts a lock back that this node lost while a majority kept it, unless
-- the node has stored a greater token since: then somebody came after us.
-- ARGV: 5 owner, 6 token, 7 mode, 8 ttl, 9 desc.
local owner, token, mode = ARGV[5], tonumber(ARGV[6]), ARGV[7]
recall()
local own, state = mine(owner)
if own then return 'ok' end
if last > token or not (state == 'free' or state == 's' and mode == 's') then return 'taken' end
if not seat(owner, token, mode, ARGV[9], tonumber(ARGV[8]), state) then return 'taken' end
remember(token)
return 'ok'
