-- What the server keeps of a name. Each is a key of its own that ends by itself: what is not
-- there is not so. TAG is {LOCK}, or LOCK if that has a hash tag; BASE is PREFIXfencelock:1:
--   LOCK             text     who holds it alone, "fencelock:1 OWNER TOKEN DESC"; the key of plain SET NX PX locks
--                or  zset     who share it: "OWNER DESC" by token, and "TOKEN" by when it ends, in
--                             milliseconds; "fencelock:1 shared LIMIT" by the sum of their weights
--   BASEfence:TAG    integer  the last token, in microseconds; kept for the retention after its last use
--   BASEqueue:TAG    zset     who waits, "OWNER DESC", by ticket: the time it came, made unique
--   BASEalive:TAG:C  mark     the client C, which waits, is believed to live
--   BASEsleeps:TAG   mark     some waiter was told to look again in more than GRANT
--   BASEclosed:TAG   owner    a minimum hold runs, begun by this owner
--   BASEleft:TAG:O   text     owner O has let go, by this release: a late try of it does nothing
--   BASElimit:TAG    text     "LIMIT VERSION", the limit for everybody, if Resize set one
--   marker           text     with a quarantine: the server's last known incarnation
-- DESC is "CLIENT MODE LIMIT WEIGHT TTL MINHOLD PID HOST NOTE". Numbers go into text with %d,
-- since .. loses digits. settings are "RETENTION COUNTS QUARANTINE": whether PUBLISH counts all
-- who listen, as it does without a Cluster, and how long the quarantine lasts.
--
-- A node of a Cluster whose slot moves answers for the lock key, wherever that is, and refuses a
-- command about a key that is absent there, or about several of which one is. So what holders do
-- needs no other key. All else begins with stays, which fails then, and is asked again.
--
-- A waiting client speaks every TOUCH ms at least, and is believed to live for ALIVE. One script
-- lets BATCH in at most, and ends PURGE leases.
local TOUCH, ALIVE, BATCH, PURGE = 20000, 60000, 64, 512
local TIMES, TOKENS = '1e11', '1e14' -- scores of a shared lock: weights, then times, then tokens

-- A name as this script sees it.
local function open(lock, marker, base, settings)
  local tag = tagOf(lock)
  local s = { ms = math.floor(stamp / 1000), failure = '', lock = lock, marker = marker, channel = base,
    fence = base .. 'fence:' .. tag, queue = base .. 'queue:' .. tag, alive = base .. 'alive:' .. tag .. ':', sleeps = base .. 'sleeps:' .. tag,
    closed = base .. 'closed:' .. tag, left = base .. 'left:' .. tag .. ':', resizing = base .. 'limit:' .. tag }
  s.retention, s.counts, s.quarantine = string.match(settings, '^(%d+) (%d) (%d+)$')
  return s
end

-- Fails while a slot of a Cluster moves: the second key is never there.
local function stays(s) if s.counts == '0' then call('EXISTS', s.fence, s.left) end end

local function starts(text, with) return string.sub(text, 1, #with) == with end

-- An entry of the queue, or a shared holder, as fields; nothing if it is no such entry.
local function read(entry)
  local owner, desc, client, mode, limit, weight, ttl, minhold = string.match(entry, '^(%S+) ((%S+) ([xs]) (%d+) (%d+) (%d+) (%d+) .*)$')
  return owner and { entry = entry, owner = owner, desc = desc, client = client, mode = mode, limit = limit,
    weight = tonumber(weight), ttl = tonumber(ttl), minhold = tonumber(minhold) }
end

-- HOLDER: free, x, s, or foreign: whatever is at the key and not ours.
local function loadLock(s, text)
  s.mode, s.text = 'free', ''
  if text then
    s.mode = starts(text, FORMAT) and 'x' or 'foreign'
    s.text = s.mode == 'x' and text or string.sub(text, 1, 200)
    return
  end
  local low = redis.pcall('ZRANGEBYSCORE', s.lock, '-inf', s.ms, 'WITHSCORES', 'LIMIT', 0, PURGE)
  if low.err and not string.find(low.err, 'WRONGTYPE') then error(low.err) end
  s.limit, s.used, s.over = string.match(low[1] or '', '^' .. FORMAT .. 'shared (%d+)$'), tonumber(low[2]), low
  if s.limit then
    s.mode = 's'
  elseif call('EXISTS', s.lock) == 1 then
    s.mode, s.text = 'foreign', low.err or low[1] or ''
  end
end
