package redislock

import (
	"embed"
	"strings"

	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// These scripts implement the protocol. docs/protocol.md describes how they are used, and
// docs/internals/redis.md explains them.
//
//go:embed lua/*.lua
var luaFiles embed.FS

var (
	acquireScript      = script("head clock token acquire_fast name alive acquire_queue rules queue blocked extend acquire")
	releaseScript      = script("head release_fast clock token name rules queue release")
	batchScript        = script("head clock token batch")
	renewScript        = script("renew")
	confirmScript      = script("head clock token name rules extend begin confirm")
	touchScript        = script("head clock token name alive rules queue blocked begin touch")
	touchAllScript     = script("head clock touchall")
	leaveScript        = script("head clock token name rules queue begin leave")
	adoptScript        = script("head clock token name rules queue extend begin adopt")
	breakScript        = script("head clock token name rules queue begin break")
	resizeScript       = script("head clock token name rules queue begin resize")
	statusScript       = script("head clock status")
	extendMarkerScript = script("extend_marker")
	initScript         = script("init")
	recordScript       = script("record")

	indexScript      = redisconn.NewScript(nameindex.NoteLua)
	indexNamesScript = redisconn.NewScript(nameindex.PageLua)
	indexDropScript  = redisconn.NewScript(nameindex.DropLua)
)

// script makes a script from files of the lua directory.
func script(parts string) *redisconn.Script {
	return redisconn.NewLazyScript(func() string {
		var source strings.Builder
		for part := range strings.FieldsSeq(parts) {
			text, err := luaFiles.ReadFile("lua/" + part + ".lua")
			if err != nil {
				panic(err) // the files are embedded
			}
			source.Write(text)
		}
		return source.String()
	})
}
