-- touch: a client with waiters reports that it is alive, puts back requests that are missing in the
-- queue, and grants to the next waiters if the lock is free. KEYS as acquire. ARGV 1 base,
-- 2 settings, 3 client, 4 server time after which it must do nothing, 5 the client's own time, 6 its
-- oldest request; then a ticket and a request for each one to put back. Returns the time, whether the
-- oldest request was in the queue (1 or 0; with 0 the client puts all back by another touch), its
-- place (0: none), and why it is blocked; or the grant of a request that holds: its message was lost.
local client, oldest = ARGV[3], ARGV[6]
if stamp > ARGV[4] then return 'late ' .. stamp end
stays(s)
speaks(s, client, ARGV[5])
for i = 6, #ARGV, 2 do
  local entry = ARGV[i]
  local owner = string.match(entry, '^%S+')
  local token = tokenOf(s, owner, entry)
  if token then return string.format('mine %s %s %s', stamp, owner, token) end
  if i > 6 and call('EXISTS', s.left .. owner) == 0 then call('ZADD', s.queue, 'NX', ARGV[i - 1], entry) end
end
if #ARGV > 6 then call('PEXPIRE', s.queue, QUEUED) end
local known = call('ZRANK', s.queue, oldest)
serve(s)
local place = (call('ZRANK', s.queue, oldest) or -1) + 1
return string.format('%s %d %d %d %s %s', stamp, known and 1 or 0, place, blocked(s))
