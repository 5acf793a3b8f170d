-- status: everything about one name, as JSON. It writes nothing. Numbers are strings: cjson loses
-- digits. An empty list is {}. KEYS 1 lock. ARGV 1 base, 2 the beginning of the keys alive
local lock, base, tag = KEYS[1], ARGV[1], tagOf(KEYS[1])
local text, seats, waiting = call('MGET', lock)[1], {}, {}
if text and string.sub(text, 1, #FORMAT) ~= FORMAT then text = string.sub(text, 1, 200) end
if not text then
  seats = redis.pcall('ZRANGE', lock, 0, -1, 'WITHSCORES')
  if seats.err then text, seats = seats.err, {} end -- a key of another type
end
local queued = call('ZRANGE', base .. 'queue:' .. tag, 0, 999, 'WITHSCORES')
for i = 1, #queued, 2 do
  local client = string.match(queued[i], '^%S+ (%S+) ') or ''
  if call('EXISTS', ARGV[2] .. client) == 1 then
    waiting[#waiting + 1] = queued[i]
    waiting[#waiting + 1] = queued[i + 1]
  end
end
return cjson.encode({
  time = stamp, lock = text or nil, left = string.format('%d', call('PTTL', lock)), seats = seats, queue = waiting,
  closed = string.format('%d', call('PTTL', base .. 'closed:' .. tag)), limit = call('GET', base .. 'limit:' .. tag) or '',
})
