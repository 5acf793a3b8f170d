-- release: ends one acquisition and lets in whoever is next. An exclusive one has
-- been found to stand.
-- ARGV: 2 how the holder begins; 3 its token, if it is shared.
local own, token = ARGV[2], ARGV[3]
if not token then
  redis.call('DEL', lock)
else
  local who = look() == 's' and redis.call('ZRANGEBYSCORE', meta, token, token)[1]
  if not who or not starts(who, own) then return 'gone' end
  unseat(token)
end
if redis.call('EXISTS', queue) == 1 then
  recall(redis.call('GET', fence))
  advance(true)
end
return 'ok ' .. failure
