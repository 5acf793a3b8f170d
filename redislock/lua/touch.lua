-- touch: a client with waiters reports that it is alive, puts back requests that are missing in the
-- queue, and grants to the next waiters if the lock is free. KEYS as acquire. ARGV 1 base,
-- 2 settings, 3 client, 4 server time after which it must do nothing, 5 its oldest request; then a
-- ticket and a request for each one to put back. Returns the time, whether the oldest request was
-- in the queue (1 or 0), its place (0: not in the queue), and why it is blocked. If the oldest one
-- was missing, the queue was lost, and the client puts all its requests back by another touch
local client, oldest = ARGV[3], ARGV[5]
if stamp > ARGV[4] then return 'late ' .. stamp end
stays(s)
speaks(s, client)
for i = 6, #ARGV, 2 do
  local owner, entry = string.match(ARGV[i + 1], '^%S+'), ARGV[i + 1]
  local token = tokenOf(s, owner, entry)
  if not token then
    if call('EXISTS', s.left .. owner) == 0 then call('ZADD', s.queue, 'NX', ARGV[i], entry) end
  elseif s.mode == 's' then -- its grant was lost, so it is sent again; an exclusive holder is in the answer
    publish(s, client, string.format('grant %s %s %s 0 0 s %s', owner, token, floorOf(s), s.lock))
  end
end
call('PEXPIRE', s.queue, 2 * ALIVE)
local known = call('ZRANK', s.queue, oldest)
advance(s)
local place = (call('ZRANK', s.queue, oldest) or -1) + 1
return string.format('%s %d %d %s', stamp, known and 1 or 0, place, told(s, blocked(s)))
