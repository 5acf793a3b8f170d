-- release: ends one acquisition and lets in whoever is next.
local own, token, late = ARGV[2], ARGV[3], ARGV[4]
if not token or token == '' then
  if standing then state = 'free' end
else
  local who = state == 's' and seated(token)
  standing = who and starts(who, own)
  if standing then unseat(token, who) end
end
if standing then advance(true) end
if late and tonumber(late) > now then bar(string.match(own, '(%S+) %d+ $'), tonumber(late)) end
commit()
return standing and 'ok ' .. failure or 'gone'
