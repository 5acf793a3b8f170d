package redlock

import (
	_ "embed"

	"github.com/fencelock/fencelock/redislock"
)

// What one node does; package quorum says what a client makes of it.
var (
	//go:embed lua/common.lua
	commonLua string
	//go:embed lua/ask_fast.lua
	askFastLua string
	//go:embed lua/ask.lua
	askLua string
	//go:embed lua/raise.lua
	raiseLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/repair.lua
	repairLua string
	//go:embed lua/release_fast.lua
	releaseFastLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/leave.lua
	leaveLua string
	//go:embed lua/status.lua
	statusLua string
	//go:embed lua/inspect.lua
	inspectLua string
	//go:embed lua/init.lua
	initLua string

	askScript     = redislock.NewScript(askFastLua, commonLua, askLua)
	raiseScript   = redislock.NewScript(commonLua, raiseLua)
	renewScript   = redislock.NewScript(commonLua, renewLua)
	repairScript  = redislock.NewScript(commonLua, repairLua)
	releaseScript = redislock.NewScript(releaseFastLua, commonLua, releaseLua)
	leaveScript   = redislock.NewScript(commonLua, leaveLua)
	statusScript  = redislock.NewScript(commonLua, statusLua)
	inspectScript = redislock.NewScript(commonLua, inspectLua)
	initScript    = redislock.NewScript(commonLua, initLua)
)
