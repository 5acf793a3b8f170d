-- release: ends one acquisition and lets in whoever is next.
local own, token, late = ARGV[2], ARGV[3], ARGV[4]
if not token or token == '' then
  if standing then S.state = 'free' end
else
  local who = S.state == 's' and S.seated(token)
  standing = who and S.starts(who, own)
  if standing then S.removeHolder(token, who) end
end
if standing then S.advance(true) end
if late and tonumber(late) > now then S.barOwner(string.match(own, '(%S+) %d+ $'), tonumber(late)) end
return standing and 'ok ' .. S.failure or 'gone'
