-- TOKENS are the time of the grant, or the last token plus 1: for the second grant of one script, and
-- after the clock was set back. The last token is kept longer than the lock.
local function mint(fence, stamp, retention)
  local last = call('SET', fence, stamp, 'PX', retention, 'GET')
  if not last or last < stamp then return stamp end
  local token = string.format('%d', last + 1)
  call('SET', fence, token, 'PXAT', math.floor(last / 1000) + retention)
  return token
end
