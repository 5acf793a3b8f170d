-- release: ends one acquisition and lets in whoever is next. An exclusive one has
-- been found to stand.
-- ARGV: 3 owner, 4 token, 5 mode.
local owner, token, mode = ARGV[3], ARGV[4], ARGV[5]
if mode == 'x' then
  redis.call('DEL', lock)
else
  local who = look() == 's' and redis.call('ZRANGEBYSCORE', meta, token, token)[1]
  if not who or not starts(who, owner .. ' ' .. token .. ' ') then return 'gone' end
  unseat(token)
end
if redis.call('EXISTS', queue) == 1 then
  recall(redis.call('GET', fence))
  advance(true)
end
return 'ok ' .. failure
