-- Why a request cannot be granted: in how many ms that may change by itself (a lease, a minimum
-- hold or a quarantine ends), the reason (f another program's lock, q quarantine, m minimum hold,
-- - one of our holders), and the holder.
local function blocked(s)
  if s.mode == 's' then
    local oldest, ends = first(s, TOKENS, '+inf'), first(s, TIMES, TOKENS)[2] or s.ms
    local text = string.gsub(oldest[1] or '', ' ', ' ' .. (oldest[2] or '') .. ' ', 1)
    local left, closed = math.max(ends - s.ms, 0), shut(s)
    return closed > 0 and math.min(left, closed) or left, '-', FORMAT .. text
  elseif s.mode == 'free' then
    local left = shut(s)
    return left, left == 0 and '-' or quarantined(s) > 0 and 'q' or 'm', ''
  end
  return call('PTTL', s.lock), s.mode == 'x' and '-' or 'f', s.text
end
