-- touch: a waiting client says that it lives, puts requests back that the server forgot, and
-- lets in whoever is next. KEYS as acquire. ARGV 1 base, 2 settings, 3 client, 4 until when it
-- is served, 5 its oldest request; then pairs of ticket and request
local client, oldest = ARGV[3], ARGV[5]
if stamp > ARGV[4] then return 'late ' .. stamp end
stays(s)
speaks(s, client)
for i = 6, #ARGV, 2 do
  local owner, entry = string.match(ARGV[i + 1], '^%S+'), ARGV[i + 1]
  local token = tokenOf(s, owner, entry)
  if not token then
    call('ZADD', s.queue, 'NX', ARGV[i], entry)
  elseif s.mode == 's' then -- it has not heard so; of an exclusive one the answer tells
    publish(s, client, string.format('grant %s %s %s 0 0 s %s', owner, token, floorOf(s), s.lock))
  end
end
call('PEXPIRE', s.queue, 2 * ALIVE)
local known = call('ZRANK', s.queue, oldest)
advance(s)
local place = (call('ZRANK', s.queue, oldest) or -1) + 1
return string.format('%s %d %d %s', stamp, known and 1 or 0, place, told(s, blocked(s)))
