-- release: ends one acquisition and lets in whoever is next.
-- ARGV: 5 owner, 6 token, 7 mode.
local owner, token, mode = ARGV[5], ARGV[6], ARGV[7]
local own = owner .. ' ' .. token .. ' '
if mode == 'x' then
  local text = redis.pcall('GET', lock)
  if type(text) ~= 'string' or not starts(text, 'fencelock ' .. own) then return 'gone' end
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
