-- touchall: touch for many names (on a Cluster: one), for requests behind an exclusive holder or
-- another program. KEYS 1 the client's key alive, then the locks. ARGV 1 base, 2 server time after
-- which it must do nothing, 3 the client's own time, then its oldest request for each name. Returns
-- the time, and for each name in how many ms the lease ends (-1: never), or s: send touch.
if stamp > ARGV[2] then return 'late ' .. stamp end
local base, said, held = ARGV[1], { stamp }, call('MGET', unpack(KEYS, 2))
for i = 2, #KEYS do
  local lock, tag = KEYS[i], tagOf(KEYS[i])
  if #KEYS == 2 then call('EXISTS', base .. 'fence:' .. tag, base .. 'left:' .. tag .. ':') end -- stays
  said[i] = held[i - 1] and call('ZRANK', base .. 'queue:' .. tag, ARGV[i + 2]) and call('PTTL', lock) or 's' -- a holder is not in the queue
end
call('PEXPIRE', KEYS[1], GRANT) -- first: with full memory Redis refuses SET as the first write
call('SET', KEYS[1], ARGV[3], 'PX', GRANT)
return table.concat(said, ' ')
