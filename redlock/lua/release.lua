-- release: ends an owner's lock on this node.
-- ARGV: 5 owner, 6 its token, "0" if the owner is enough, 7 "0" to say nothing,
-- "1" to keep the name for those who wait, "2" to tell them as well.
local own, state = mine(ARGV[5])
if own and ARGV[6] ~= '0' and own ~= tonumber(ARGV[6]) then return 'gone' end
if own then free(ARGV[5], state) end
-- The node may have missed this lock, and waiters listen here nevertheless.
if ARGV[7] ~= '0' then invite(ARGV[7] == '2') end
return own and 'ok' or 'gone'
