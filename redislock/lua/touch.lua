-- touch: a waiting client says that it lives, puts requests the server forgot
-- back at their places, and lets in whoever is next.
-- ARGV: 2 client, 3 its longest TTL, 4 until when it is served, 5 its oldest request;
-- then pairs of ticket and request.
local client, ttl = ARGV[2], tonumber(ARGV[3])
if tonumber(ARGV[4]) < now then return 'late ' .. S.int(now) end
-- Who was not heard of for long is forgotten. This is also a write that is not
-- refused when memory is full, and all after it are not.
local cut = S.int(now - 1000 * S.patience(TOUCH))
call('ZREMRANGEBYSCORE', alive, '-' .. cut, cut)
S.noteAlive(client)
local back = false
for i = 6, #ARGV, 2 do
  local owner = string.match(ARGV[i + 1], '^%S+ ')
  if not S.starts(S.holder, 'fencelock ' .. owner) then
    call('ZADD', queue, 'NX', ARGV[i], ARGV[i + 1])
    back = true
  end
end
-- The queue may have come to a node of a Cluster after a release there, which found nobody.
local known = call('ZRANK', queue, ARGV[5])
if back or known or S.lined then S.lasting(ttl, back) end

local place = known
if not known or S.state ~= 'x' and S.state ~= 'foreign' then
  S.advance()
  place = call('ZRANK', queue, ARGV[5])
end
local text = S.blockedInfo(client)
return string.format('%d %d %d %s', now, known and 1 or 0, (place or -1) + 1, text)
