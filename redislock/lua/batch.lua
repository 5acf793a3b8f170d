-- batch: many uncontended acquires and releases of exclusive locks in one script. An operation that
-- is contended is left undone, and the client sends it alone. A batch that arrives twice gets its
-- first answer again. Clients send no batches on a Cluster or with replicas to wait for, and put no
-- acquire into one that has a minimum hold or a quarantine.
-- KEYS the lock of each operation. ARGV 1 base, 2 retention, 3 server time after which acquires must
-- do nothing, 4 id of the batch, 5 a letter for each operation: a (its arguments: owner, description,
-- TTL) or r (owner, token). Returns the time and a letter for each operation: t taken, with the time
-- as its token; o released; s send it alone.
local base, said, at = ARGV[1], {}, 6
local answer = call('GET', base .. 'batch:' .. ARGV[4])
if answer then return answer end
for i, lock in ipairs(KEYS) do
  local tag, owner = tagOf(lock), ARGV[at]
  said[i] = 's'
  if string.sub(ARGV[5], i, i) == 'a' then
    if stamp <= ARGV[3] and call('EXISTS', lock, base .. 'queue:' .. tag, base .. 'closed:' .. tag, base .. 'left:' .. tag .. ':' .. owner) == 0
        and mint(base .. 'fence:' .. tag, stamp, ARGV[2]) == stamp then
      call('SET', lock, FORMAT .. owner .. ' ' .. stamp .. ' ' .. ARGV[at + 1], 'PX', ARGV[at + 2])
      said[i] = 't'
    end
    at = at + 3
  else
    local own = FORMAT .. owner .. ' ' .. ARGV[at + 1] .. ' '
    if string.sub(call('MGET', lock)[1] or '', 1, #own) == own and call('EXISTS', base .. 'queue:' .. tag) == 0 then
      call('DEL', lock)
      call('SET', base .. 'left:' .. tag .. ':' .. owner, ARGV[4], 'PX', GRANT)
      said[i] = 'o'
    end
    at = at + 2
  end
end
answer = stamp .. ' ' .. table.concat(said)
call('SET', base .. 'batch:' .. ARGV[4], answer, 'PX', GRANT)
return answer
