-- The way of most releases: an exclusive lock that nobody waits for. Whether it
-- stands is looked at here for the others, too.
if ARGV[5] == 'x' then
  local both = redis.call('MGET', KEYS[1], KEYS[2])
  local text, last, own = both[1], both[2], 'fencelock ' .. ARGV[3] .. ' ' .. ARGV[4] .. ' '
  if not text or string.sub(text, 1, #own) ~= own then return 'gone' end
  if last and string.sub(last, -2) ~= ' q' then
    redis.call('DEL', KEYS[1])
    return 'ok '
  end
end

