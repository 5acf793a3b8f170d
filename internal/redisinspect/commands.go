package redisinspect

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// Supply is what to do about a command that a server lacks.
const Supply = "ask the provider for the command, which was removed or renamed, or use another server; no right brings it back"

// harmless are arguments with which a command changes nothing that matters, by command. KEY stands
// for a key that nobody uses, and CHANNEL for a channel. Commands that are not in it would change
// the connection.
var harmless = map[string]string{
	"eval": "return'' 0", "evalsha": "0 0", "get": "KEY", "mget": "KEY", "set": "KEY 0 XX", "del": "KEY", "exists": "KEY",
	"pttl": "KEY", "pexpire": "KEY 1", "pexpireat": "KEY 1", "zadd": "KEY XX 0 m", "zrem": "KEY m", "zrange": "KEY 0 0",
	"zrevrange": "KEY 0 0", "zrangebyscore": "KEY 0 0", "zrevrangebyscore": "KEY 0 0", "zscore": "KEY m", "zscan": "KEY 0",
	"zrank": "KEY m", "hget": "KEY f", "hset": "KEY f", "hdel": "KEY f", "time": "", "publish": "CHANNEL doctor", "info": "server",
	"scan": "0 MATCH KEY", "wait": "0 0",
}

// without says what fails without commands that no lock needs. Without others locks fail.
var without = map[string]string{
	"publish": "without PUBLISH waiters are granted a released lock up to a second late, and a holder learns late that its lock was broken",
	"scan":    "without SCAN, ls --scan and the listing of records fail",
	"zscan":   "without ZSCAN, ls reads all keys of the server",
	"wait":    "without WAIT, requests with min-replicas fail",
	"info":    "without INFO an eviction policy is not noticed, and quarantine fails",
}

// Commands tries each command of an ACL rule such as "+get +set" with a key that nobody uses, and
// returns a finding about those that a master refuses, if there are any.
func Commands(ctx context.Context, conn redisconn.Conn, rule, key, channel, grant string) []driver.Finding {
	var lacking, denied, means []string
	severity := driver.Warning
	for _, word := range strings.Fields(rule) {
		command := strings.TrimPrefix(word, "+")
		args, ok := harmless[command]
		if !ok {
			continue
		}
		args = strings.NewReplacer("KEY", key, "CHANNEL", channel).Replace(args)
		answers, err := conn.Each(ctx, append([]string{strings.ToUpper(command)}, strings.Fields(args)...)...)
		if err != nil {
			return nil // who cannot be reached is reported elsewhere
		}
		i := slices.IndexFunc(answers, func(a redisconn.Answer) bool { return redisconn.Denied(a.Err) })
		if i < 0 {
			continue
		}
		if e, _ := errors.AsType[redisconn.ServerError](answers[i].Err); e.Unknown() {
			lacking = append(lacking, strings.ToUpper(command))
		} else {
			denied = append(denied, strings.ToUpper(command))
		}
		if what, ok := without[command]; ok {
			means = append(means, what)
		} else {
			severity = driver.Broken
		}
	}
	var saw, do []string
	if len(lacking) > 0 {
		saw, do = append(saw, "the server lacks "+strings.Join(lacking, ", ")), append(do, Supply)
	}
	if len(denied) > 0 {
		saw, do = append(saw, "this user may not run "+strings.Join(denied, ", ")), append(do, grant)
	}
	if saw == nil {
		return nil
	}
	if severity == driver.Broken {
		means = append(means, "locks fail; probe lock and rights say which")
	}
	return []driver.Finding{inspect.Found("commands", severity, strings.Join(saw, "; "), strings.Join(means, "; "), strings.Join(do, "; "))}
}
