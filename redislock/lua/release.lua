-- release: ends one acquisition and lets in whoever is next. An exclusive one has
-- been found to stand.
-- ARGV: 5 owner, 6 token, 7 mode.
local owner, token, mode = ARGV[5], ARGV[6], ARGV[7]
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
