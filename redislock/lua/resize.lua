-- resize: sets the limit for everybody and lets in whoever fits now. It may run
-- again, and has no effect after a later one. ARGV: 2 limit, 3 version, or nothing to
-- be told a version that is greater than all before.
if not ARGV[3] then
  commit()
  return 'version ' .. int(math.max(version + 1, now))
end
local limit, new = ARGV[2], tonumber(ARGV[3])
if new > version then
  if last == 0 then last = now end -- nobody remembers a token: the next one is greater than now
  resized, version, dirty = limit, new, true
  advance()
end
commit()
return 'ok ' .. failure
