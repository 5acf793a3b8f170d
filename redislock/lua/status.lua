-- status: everything about one name, as JSON. It changes nothing. Numbers are
-- strings, since cjson loses digits; an empty list comes as {}.
local lock, fence, queue, alive, shared, meta = unpack(KEYS)
local call, text, heard = redis.call, redis.pcall('GET', lock), {}
if type(text) == 'table' then text = text.err end -- a key of another type
if text and string.sub(text, 1, 10) ~= 'fencelock ' then text = string.sub(text, 1, 200) end
local queued = call('ZRANGE', queue, 0, 999, 'WITHSCORES')
for i = 1, #queued, 2 do
  heard[#heard + 1] = call('ZSCORE', alive, string.match(queued[i], '^%S+ (%S+) ') or '') or '0'
end
return cjson.encode({
  time = call('TIME'), lock = text or nil, left = string.format('%d', call('PTTL', lock)), fence = call('GET', fence) or '',
  shared = call('ZRANGE', shared, 0, -1, 'WITHSCORES'), meta = call('ZRANGE', meta, 0, -1), queue = queued, heard = heard,
})
