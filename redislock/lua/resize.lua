-- resize: sets the limit for everybody and lets in whoever fits now. It may run
-- again, and has no effect after a later one. ARGV: 2 limit, 3 version, or nothing to
-- be told a version that is greater than all before.
if not ARGV[3] then return 'version ' .. S.int(math.max(S.version + 1, now)) end
local limit, new = ARGV[2], tonumber(ARGV[3])
if new > S.version then
  if S.last == 0 then S.last = now end -- nobody remembers a token: the next one is greater than now
  S.resized, S.version, S.dirty = limit, new, true
  S.advance()
end
return 'ok ' .. S.failure
