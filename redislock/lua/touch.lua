-- touch: a waiting client says that it lives, puts requests the server forgot
-- back at their places, and lets in whoever is next.
-- ARGV: 2 client, 3 its longest TTL, 4 how many requests follow whose places it
-- asks for, the oldest first; then pairs of ticket and request.
local client, life, asked = ARGV[2], PATIENCE * ARGV[3], tonumber(ARGV[4])
-- A write that is not refused when memory is full, and all after it are not.
redis.call('PEXPIRE', queue, int(math.max(redis.call('PTTL', queue), life)))
local state, limit, text = look()
for i = 5 + asked, #ARGV, 2 do
  local owner = string.match(ARGV[i + 1], '^%S+ ')
  if not starts(text, 'fencelock ' .. owner) then redis.call('ZADD', queue, 'NX', ARGV[i], ARGV[i + 1]) end
end
if #ARGV > 5 + asked then
  extend(queue, life)
  recall(redis.call('GET', fence))
  if not lined then remember() end
end
redis.call('ZADD', alive, int(now), client)
if redis.call('PTTL', alive) < life then redis.call('PEXPIRE', alive, int(2 * life)) end

local known = redis.call('ZRANK', queue, ARGV[5])
local places = {}
if state == 'free' or state == 's' then
  recall(redis.call('GET', fence))
  advance()
  state, limit, text = look()
elseif known then
  places[1] = known + 1
end
for i = #places + 1, asked do
  places[i] = (redis.call('ZRANK', queue, ARGV[4 + i]) or -1) + 1
end
return string.format('%d %d %s %s', now, known and 1 or 0, table.concat(places, ','), outlook(state, limit, text))
