-- TOKENS grow, whatever the clock does, and outlive the lock.
local function mint(fence, stamp, retention)
  local last = call('SET', fence, stamp, 'PX', retention, 'GET')
  if not last or last < stamp then return stamp end
  local token = string.format('%d', last + 1) -- the clock was set back
  call('SET', fence, token, 'PXAT', math.floor(last / 1000) + retention)
  return token
end
