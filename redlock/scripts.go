package redlock

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// The scripts that run on one node. Package quorum evaluates their replies.
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
	//go:embed lua/init.lua
	initLua string
)

// scripts are the scripts of one deployment. Values that are the same in every call are constants
// in the scripts, because arguments would be sent, read and parsed each time.
type scripts struct {
	ask, raise, renew, repair, release, leave, status, init *redisconn.Script
}

// scripts returns the scripts for n nodes. edit changes their texts, for tests; it may be nil.
func (cfg *Config) scripts(n int, edit func(string) string) scripts {
	constants := cfg.constants(n)
	script := func(parts ...string) *redisconn.Script {
		text := strings.Join(parts, "")
		if edit != nil {
			text = edit(text)
		}
		return redisconn.NewScript(constants, text)
	}
	return scripts{
		ask:     script(askFastLua, commonLua, askLua),
		raise:   script(commonLua, raiseLua),
		renew:   script(commonLua, renewLua),
		repair:  script(commonLua, repairLua),
		release: script(releaseFastLua, commonLua, releaseLua),
		leave:   script(commonLua, leaveLua),
		status:  script(commonLua, statusLua),
		init:    script(commonLua, initLua),
	}
}

// constants returns the first line of every script.
func (cfg *Config) constants(n int) string {
	quarantine := time.Duration(0)
	if !cfg.NoQuarantine {
		quarantine = cfg.MaxTTL
	}
	names := slices.Sorted(slices.Values(cfg.Nodes))
	sum := sha256.Sum256([]byte(strings.Join(names, " ")))
	set := strconv.Itoa(n) + "-" + hex.EncodeToString(sum[:6])
	return fmt.Sprintf("local RETENTION, CHANNEL, QUARANTINE, NODES, MARKER, KEEP, REFRESH, AHEAD = %s, %s, %s, %s, %s, %s, %s, %d\n",
		redisfmt.Millis(cfg.Retention), quote(cfg.channel()), redisfmt.Millis(quarantine), quote(set), quote(cfg.Prefix+"fencelock:node"),
		redisfmt.Millis(cfg.MarkerLife), redisfmt.Millis(min(24*time.Hour, cfg.MarkerLife/4)), cfg.ahead().Microseconds())
}

// ahead returns how far ahead of a node's clock a proposed token may be, so that a client with a
// wrong clock cannot advance the tokens far. A node that has lost its tokens waits for longer than
// that.
func (cfg *Config) ahead() time.Duration {
	if cfg.NoQuarantine {
		return ahead
	}
	return min(ahead, cfg.MaxTTL/2)
}

// quote returns a Lua string literal.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "\\%03d", c)
	}
	b.WriteByte('\'')
	return b.String()
}
