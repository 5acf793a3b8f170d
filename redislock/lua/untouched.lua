-- untouched reports whether a lock that is free may be taken without a further look,
-- by its fence: nobody waits for it, no minimum hold closes it, no limit is set for
-- everybody, and the clock goes forward.
local function untouched(last, fence)
  if not last then return redis.call('EXISTS', 'queue:' .. string.sub(fence, 7)) == 0 end
  return string.sub(last, -2) == ' 0' and last < stamp
end
