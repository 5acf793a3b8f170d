package redislock

import (
	_ "embed"

	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// The protocol is in these scripts; docs/design.md says why it is as it is.
var (
	//go:embed lua/clock.lua
	clockLua string
	//go:embed lua/untouched.lua
	untouchedLua string
	//go:embed lua/begin.lua
	beginLua string
	//go:embed lua/common.lua
	commonLua string
	//go:embed lua/end.lua
	endLua string
	//go:embed lua/acquire_fast.lua
	acquireFastLua string
	//go:embed lua/acquire_shared.lua
	acquireSharedLua string
	//go:embed lua/release_shared.lua
	releaseSharedLua string
	//go:embed lua/acquire_queue.lua
	acquireQueueLua string
	//go:embed lua/release_queue.lua
	releaseQueueLua string
	//go:embed lua/release_fast.lua
	releaseFastLua string
	//go:embed lua/batch.lua
	batchLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/touch.lua
	touchLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/leave.lua
	leaveLua string
	//go:embed lua/break.lua
	breakLua string
	//go:embed lua/confirm.lua
	confirmLua string
	//go:embed lua/resize.lua
	resizeLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/status.lua
	statusLua string
	//go:embed lua/remark.lua
	remarkLua string
	//go:embed lua/init.lua
	initLua string
	//go:embed lua/record.lua
	recordLua string

	acquireScript    = redisconn.NewScript(clockLua, untouchedLua, acquireFastLua, acquireSharedLua, acquireQueueLua, commonLua, acquireLua, endLua)
	batchScript      = redisconn.NewScript(clockLua, untouchedLua, batchLua)
	touchScript      = redisconn.NewScript(clockLua, beginLua, commonLua, touchLua, endLua)
	releaseScript    = redisconn.NewScript(releaseFastLua, clockLua, releaseSharedLua, releaseQueueLua, commonLua, releaseLua, endLua)
	leaveScript      = redisconn.NewScript(clockLua, beginLua, commonLua, leaveLua, endLua)
	breakScript      = redisconn.NewScript(clockLua, beginLua, commonLua, breakLua, endLua)
	confirmScript    = redisconn.NewScript(clockLua, beginLua, commonLua, confirmLua, endLua)
	resizeScript     = redisconn.NewScript(clockLua, beginLua, commonLua, resizeLua, endLua)
	renewScript      = redisconn.NewScript(renewLua)
	statusScript     = redisconn.NewScript(statusLua)
	remarkScript     = redisconn.NewScript(remarkLua)
	initScript       = redisconn.NewScript(initLua)
	recordScript     = redisconn.NewScript(recordLua)
	indexScript      = redisconn.NewScript(nameindex.NoteLua)
	indexNamesScript = redisconn.NewScript(nameindex.PageLua)
	indexDropScript  = redisconn.NewScript(nameindex.DropLua)
)
