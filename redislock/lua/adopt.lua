-- adopt: ends one acquisition and makes another owner the holder, in one step. It may run twice. A
-- minimum hold continues. KEYS as acquire. ARGV 1 base, 2 settings, 3 the new owner, 4 its
-- description, 5 server time after which the request must do nothing, 6 the owner of the
-- acquisition, 7 its token
if stamp > ARGV[5] then return 'late ' .. stamp end
stays(s)
local owner, from, was = ARGV[3], ARGV[6], ARGV[7]
if call('EXISTS', s.left .. owner) == 1 then return 'ended ' .. stamp end
local r, old = read(owner .. ' ' .. ARGV[4]), s.mode == 's' and read(seatOf(s, was))
local token, floor = tokenOf(s, owner, r.entry)
if token then -- an earlier attempt succeeded
  extend(s, owner, token, r.ttl)
  floor = floorOf(s, token)
elseif s.mode ~= r.mode or not (old and old.owner == from or starts(s.text, FORMAT .. from .. ' ' .. was .. ' ')) then
  return 'gone ' .. stamp
elseif old and (old.limit ~= r.limit or old.weight ~= r.weight) then
  return string.format('unlike %s %s %d', stamp, old.limit, old.weight)
else
  local left = quarantined(s) -- a server that has lost an adoption must not repeat it
  if left > 0 then return string.format('quarantine %s %d', stamp, left) end
  release(s, from, was)
  mark(s, from, '')
  token, floor = addHolder(s, r, r.ttl)
end
return string.format('granted %s %s %s', stamp, token, floor)
