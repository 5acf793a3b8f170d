-- status: the holders and waiters of one name on this node, as JSON. Numbers are strings, because
-- cjson loses digits.
local out = { now = int(now), mode = 'x', holders = {}, waiters = {} }
local text = redis.pcall('GET', lock)
if type(text) == 'table' then text = text.err end
if text == 'fencelock shared 0' then
  out.mode = 's'
  for _, owner in ipairs(redis.call('ZRANGE', shared, 0, -1)) do
    local who = string.format('%s %d %s', owner, redis.call('ZSCORE', tokens, owner) or 0, redis.call('HGET', about, owner) or '')
    table.insert(out.holders, { who, redis.call('ZSCORE', shared, owner) })
  end
elseif text then
  local left = redis.call('PTTL', lock)
  local ends = left < 0 and '-1' or int(ms + left)
  local ours = starts(text, 'fencelock ')
  table.insert(out.holders, { ours and string.sub(text, 11) or '', ends, ours and '' or string.sub(text, 1, 200) })
end
for _, caller in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
  local till, mode, who = string.match(redis.call('HGET', callers, caller) or '', '^(%d+) (%S+) (.*)$')
  if till and tonumber(till) > ms then table.insert(out.waiters, caller .. ' 0 ' .. who) end
end
loadFence()
server()
out.notbefore = int(notbefore)
return cjson.encode(out)
