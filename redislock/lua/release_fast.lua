-- The way of most releases: an exclusive lock that nobody waits for. Whether it
-- stands is looked at here for the others, too.
if not ARGV[3] then
  local both = redis.call('MGET', KEYS[1], KEYS[2])
  local text, last = both[1], both[2]
  if not text or string.sub(text, 1, #ARGV[2]) ~= ARGV[2] then return 'gone' end
  if last and string.sub(last, -2) ~= ' q' then
    redis.call('DEL', KEYS[1])
    return 'ok '
  end
end

