-- TOKENS are the time of the grant. If the clock was set back, the token is the last one plus 1. The
-- last token is kept longer than the lock.
local function mint(fence, stamp, retention)
  local last = call('SET', fence, stamp, 'PX', retention, 'GET')
  if not last or last < stamp then return stamp end
  local token = string.format('%d', last + 1) -- the clock was set back
  call('SET', fence, token, 'PXAT', math.floor(last / 1000) + retention)
  return token
end
