local s = open(lock, KEYS[2], base, ARGV[2])
if had then
  s.mode = 'free'
else
  loadLock(s, text)
  purge(s)
  had = release(s, owner, token)
  waited = redis.pcall('EXISTS', s.queue, s.left)
end
if type(waited) == 'table' then return (had and 'ok' or 'gone') .. ' moving' end
local again = not had and call('GET', s.left .. owner) == id
if had or late then mark(s, owner, (had or again) and id or '', late) end
if waited == 1 then serve(s) end
return (had or again) and 'ok ' .. s.failure or 'gone '
