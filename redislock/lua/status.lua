-- status: everything about one name, as JSON. It changes nothing. Numbers are
-- strings: cjson loses digits.
local lock, fence, queue, alive, shared, meta = unpack(KEYS)
local clock = redis.call('TIME')
local out = { now = string.format('%d', clock[1] * 1000000 + clock[2]), limit = '', resized = '', holders = {}, waiters = {} }
local text = redis.pcall('GET', lock)
if type(text) == 'table' then text = text.err end
local limit = text and string.match(text, '^fencelock shared (%d+)')
if limit then
  out.limit = limit
  local ends = {}
  local list = redis.call('ZRANGE', shared, 0, -1, 'WITHSCORES')
  for i = 1, #list, 2 do ends[list[i]] = list[i + 1] end
  for _, who in ipairs(redis.call('ZRANGE', meta, 0, -1)) do
    table.insert(out.holders, { who, ends[string.match(who, '^%S+ (%d+)')] or '0' })
  end
elseif text then
  local left = redis.call('PTTL', lock)
  local ends = left < 0 and '-1' or string.format('%d', math.floor((clock[1] * 1000000 + clock[2]) / 1000) + left)
  local ours = string.sub(text, 1, 10) == 'fencelock '
  table.insert(out.holders, { ours and string.sub(text, 11) or '', ends, ours and '' or string.sub(text, 1, 200) })
end
local queued = redis.call('ZRANGE', queue, 0, 999, 'WITHSCORES')
for i = 1, #queued, 2 do
  local heard = redis.call('ZSCORE', alive, string.match(queued[i], '^%S+ (%S+) ') or '') or '0'
  if tonumber(heard) >= 0 and tonumber(heard) < tonumber(queued[i + 1]) then heard = queued[i + 1] end
  table.insert(out.waiters, { queued[i], queued[i + 1], heard })
end
local notbefore, rest = string.match(redis.call('GET', fence) or '', '^%d+ %d+ %S+ (%d+)(.*)$')
out.notbefore, out.resized = notbefore or '0', string.match(rest or '', '^ l(%d+)') or ''
return cjson.encode(out)
