-- extend_marker: makes the marker of the quarantine last for at least so many ms, if it exists.
-- KEYS 1 marker. ARGV 1 milliseconds
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 'none' end
if left < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return 'ok'
