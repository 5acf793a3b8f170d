-- The way of most releases: an exclusive lock that nobody waits for. Whether an
-- exclusive one stands is looked at here for the others, too.
-- ARGV: 2 how the holder begins; 3 its token, if it is shared, else empty; 4 until
-- when a late try of it must not be served.
local both = redis.call('MGET', KEYS[1], KEYS[2])
local standing = (ARGV[3] or '') ~= '' or both[1] and string.sub(both[1], 1, #ARGV[2]) == ARGV[2]
if not ARGV[3] then
  if not standing then return 'gone' end
  if both[2] and string.sub(both[2], -2) ~= ' q' then
    redis.call('DEL', KEYS[1])
    return 'ok '
  end
end
