-- Every script about a name begins with this. FORMAT begins what it writes into a lock key;
-- what begins otherwise is somebody else's. GRANT: for so many ms holds a waiter that was let
-- in, until it says that it knows.
local call, FORMAT, GRANT = redis.call, 'fencelock:1 ', 2000
-- The end of the keys beside a lock, which says of which lock they are and keeps them in its slot.
local function tagOf(lock) return string.find(lock, '^[^{]*{[^}]+}') and lock or '{' .. lock .. '}' end
