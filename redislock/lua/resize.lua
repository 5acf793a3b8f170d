-- resize: sets the limit for all holders and grants to the waiters that fit now. It may run twice,
-- and does nothing after a resize with a greater version. KEYS as acquire. ARGV 1 base, 2 settings,
-- 3 limit, 4 version; without a version it only returns one that is greater than all before
stays(s)
local version = tonumber(string.match(call('GET', s.resizing) or '', '^%d+ (%d+)$') or 0)
if not ARGV[4] then return string.format('version %d', math.max(version + 1, stamp)) end
if tonumber(ARGV[4]) > version then
  call('SET', s.resizing, ARGV[3] .. ' ' .. ARGV[4], 'PX', s.retention)
  serve(s)
end
return 'ok ' .. s.failure
