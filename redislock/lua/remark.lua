-- remark: keeps the marker of a server's incarnation for at least so long, if there
-- is one. KEYS: marker. ARGV: 1 milliseconds.
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 'none' end
if left < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return 'ok'
