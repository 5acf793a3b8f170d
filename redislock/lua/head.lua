-- All scripts about a name begin with this. FORMAT begins every value that we write into a lock
-- key; a value that begins otherwise belongs to another program. GRANT: a hand-over is a lease of
-- at most so many ms, which the waiter extends when it has received the grant (confirm).
local call, FORMAT, GRANT = redis.call, 'fencelock:2 ', 2000
-- The suffix of all other keys of a lock. It names the lock and keeps the keys in the same slot.
local function tagOf(lock) return string.find(lock, '^[^{]*{[^}]+}') and lock or '{' .. lock .. '}' end
