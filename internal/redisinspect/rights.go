package redisinspect

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
)

//go:embed inspect.lua
var inspectSource string

var (
	inspectScript = redisconn.NewScript(inspectSource)
	pageScript    = redisconn.NewScript(nameindex.PageLua)
)

// missingRights is what the user is not allowed, and what the server allows nobody just now.
type missingRights struct {
	commands []string // lock commands
	keys     bool
	channel  bool
	index    bool     // of the names
	looking  []string // commands without which ls, watch or waiting suffer
	write    string   // the server refuses writes, whoever asks
	words    []string // the server's own words
}

// rights tries every command of the lock scripts, and the commands around them: the server
// alone knows what its rules allow, and some of them only show when a key is named. What
// is tried on a probe name does not depend on one another, so that one look shows all.
func (in *Inspection) rights(ctx context.Context) ([]driver.Finding, error) {
	var l missingRights
	refused, err := in.try(ctx, &l, in.onStrings())
	// A key without an expiry must not stay if the user may not delete it either.
	if err == nil && !(slices.Contains(refused, "DEL") && slices.Contains(refused, "PEXPIRE")) {
		_, err = in.try(ctx, &l, in.onSets())
	}
	if err != nil {
		return nil, err
	}
	if err := in.around(ctx, &l); err != nil {
		return nil, err
	}
	return []driver.Finding{l.rights(in.keyPatterns()), l.extraRights(in.Prefix), l.writes()}, nil
}

// onStrings are the commands of the lock scripts that need no key or a string. The keys
// are those of Inspection.Keys: the lock, its fence, four more, and the marker.
func (in *Inspection) onStrings() [][]string {
	lock, fence := in.Keys[0], in.Keys[1]
	commands := [][]string{{"TIME"}, {"PUBLISH", in.Channel, "inspect"}}
	if in.Quarantine {
		commands = append(commands, []string{"INFO", "server"}, []string{"GET", in.Keys[6]})
	}
	for _, key := range []string{lock, fence} {
		commands = append(commands, []string{"SET", key, "fencelock inspect", "PX", "1000"}, []string{"GET", key}, []string{"PTTL", key})
	}
	return append(commands, []string{"MGET", lock, fence}, []string{"EXISTS", lock},
		[]string{"PEXPIREAT", lock, "9999999999999"}, []string{"PEXPIRE", lock, "1000"}, []string{"DEL", lock, fence})
}

// onSets are those that need a sorted set. They leave none behind.
func (in *Inspection) onSets() [][]string {
	sets := in.Keys[2:6]
	var commands [][]string
	for _, key := range sets {
		commands = append(commands, []string{"ZADD", key, "1", "a"}, []string{"PEXPIRE", key, "1000"})
	}
	for _, c := range []string{"ZSCORE K a", "ZRANK K a", "ZCARD K", "ZRANGE K 0 -1", "ZREVRANGE K 0 -1", "ZRANGEBYSCORE K -inf 0", "ZREMRANGEBYSCORE K -inf 0", "ZREM K a"} {
		words := strings.Fields(c)
		words[1] = sets[0]
		commands = append(commands, words)
	}
	return append(commands, append([]string{"DEL"}, sets...))
}

// try tries commands in a script, as the locks do: a right to run a command outside of one
// is another. It returns and notes which of them are refused.
func (in *Inspection) try(ctx context.Context, l *missingRights, commands [][]string) (refused []string, err error) {
	var args []string
	for _, c := range commands {
		args = append(args, strings.Join(c, "\n"))
	}
	reply := in.Conn.Eval(ctx, []redisconn.Call{{Script: inspectScript, Keys: in.Keys, Args: args}})[0]
	text, answered := redisconn.Refused(reply.Err)
	switch {
	case reply.Err == nil:
		for line := range strings.Lines(reply.Text) {
			command, words, _ := strings.Cut(strings.TrimSpace(line), " ")
			l.add(command, words)
			refused = append(refused, command)
		}
	case answered:
		l.add("EVAL", text)
	default:
		return nil, reply.Err
	}
	return refused, nil
}

// keyPatterns are the ACL rules for all keys of all locks.
func (in *Inspection) keyPatterns() string {
	patterns := "~" + in.Prefix + "lock:*"
	for _, c := range in.Companions {
		patterns += " ~" + c + "*"
	}
	if in.Quarantine {
		patterns += " ~" + in.Prefix + "fencelock:incarnation"
	}
	return patterns
}

// around tries what the client sends outside of scripts: without SCAN nobody can list, and
// without WAIT replicas cannot be waited for.
func (in *Inspection) around(ctx context.Context, l *missingRights) error {
	commands := [][]string{{"SCAN", "0", "COUNT", "1"}}
	if in.MinReplicas > 0 {
		commands = append(commands, []string{"WAIT", "0", "1"})
	}
	for _, args := range commands {
		answers, err := in.Conn.Each(ctx, args...)
		for _, a := range answers {
			err = cmp.Or(err, a.Err)
		}
		text, refused := redisconn.Refused(err)
		switch {
		case err == nil:
		case !refused:
			return err
		case args[0] == "SCAN":
			l.looking = append(l.looking, "SCAN")
		default:
			l.add(args[0], text)
		}
	}
	read := in.Conn.Eval(ctx, []redisconn.Call{{Script: pageScript, Keys: []string{in.Index}, Args: []string{"0"}}})[0]
	if read.Err != nil && !refusal(read.Err) {
		return read.Err
	}
	l.index = redisconn.Denied(read.Err)
	return in.listen(ctx, l)
}

// listen subscribes for a moment to a channel like those of the waiters. Its limit is for a
// server that accepts the subscription and does not say so.
func (in *Inspection) listen(parent context.Context, l *missingRights) error {
	ctx, cancel := context.WithTimeout(parent, 5*time.Second)
	defer cancel()
	heard := false
	err := in.Conn.Subscribe(ctx, in.Channel, func() { heard = true; cancel() }, func(string) {})
	switch {
	case heard || parent.Err() != nil:
		return parent.Err()
	case err != nil && !refusal(err):
		return err
	case err != nil && strings.Contains(err.Error(), "command"):
		l.looking = append(l.looking, "SUBSCRIBE")
	default:
		l.channel = true
	}
	return nil
}

// add sorts one refusal. Servers say "can't run this command", or from 7.2 on "has no
// permissions to run the 'set' command"; and likewise of keys and channels.
func (l *missingRights) add(command, words string) {
	denied := redisconn.ServerError{Text: words}.Denied()
	switch {
	case denied && strings.Contains(words, " run "):
		list := &l.commands
		if command == "PUBLISH" {
			list = &l.looking
		}
		*list = append(*list, named(command, words))
	case denied && strings.Contains(words, " channel"):
		l.channel = true
	case denied:
		l.keys = true
	default:
		l.write = cmp.Or(l.write, words)
	}
	if !slices.Contains(l.words, words) {
		l.words = append(l.words, words)
	}
}

// named is the command that the server's words name in quotes, or else command. They name
// the part of a command that was refused, which is the right that is missing.
func named(command, words string) string {
	_, rest, _ := strings.Cut(words, "the '")
	name, _, ok := strings.Cut(rest, "' command")
	if !ok {
		return command
	}
	return strings.ToUpper(strings.ReplaceAll(name, "|", " "))
}

// rights is the finding about commands and keys: with one of them missing no lock can be
// had. The fix is one line for the server's administrator.
func (l *missingRights) rights(patterns string) driver.Finding {
	f := driver.Finding{Check: "rights", Observed: "every command of the lock scripts is allowed"}
	slices.Sort(l.commands)
	l.commands = slices.Compact(l.commands)
	var missing, grants []string
	if len(l.commands) > 0 {
		missing = append(missing, "no right to run "+strings.Join(l.commands, ", "))
		for _, c := range l.commands {
			grants = append(grants, "+"+strings.ToLower(strings.ReplaceAll(c, " ", "|")))
		}
	}
	if l.keys {
		missing = append(missing, "no right to some of the keys")
		grants = append(grants, patterns)
	}
	if len(missing) == 0 {
		return f
	}
	f.Severity = driver.Broken
	f.Observed = strings.Join(missing, "; ")
	f.Impact = fmt.Sprintf("locks fail with %q", strings.Join(l.words, "; "))
	f.Fix = "ACL SETUSER name " + strings.Join(grants, " ")
	return f
}

// extraRights is the finding about what waiters and listings need. Locks work without, so it
// is a warning.
func (l *missingRights) extraRights(prefix string) driver.Finding {
	f := driver.Finding{Check: "notices", Observed: "waiters are told, and names can be listed"}
	var missing, grants, means []string
	slices.Sort(l.looking)
	for _, c := range slices.Compact(l.looking) {
		missing = append(missing, "no right to run "+c)
		grants = append(grants, "+"+strings.ToLower(c))
		if c == "SCAN" {
			means = append(means, "ls and watch fail")
		}
	}
	if l.channel {
		missing = append(missing, "no right to the channels")
		grants = append(grants, "&"+prefix+"fencelock:*")
	}
	if l.channel || len(means) < len(missing) {
		means = append(means, "waiters are not told when it is their turn, and get in late")
	}
	if l.index {
		missing = append(missing, "no right to run ZSCAN on the index of names")
		grants = append(grants, "+zscan ~"+prefix+"fencelock:names*")
		means = append(means, "ls and watch look through all keys of the server")
	}
	if len(missing) == 0 {
		return f
	}
	f.Severity = driver.Warning
	f.Observed = strings.Join(missing, "; ")
	f.Impact = strings.Join(means, "; ")
	f.Fix = "ACL SETUSER name " + strings.Join(grants, " ")
	return f
}

// writes is the finding about a server that takes no writes from anybody: what it says is
// its state, and no right of the user's.
func (l *missingRights) writes() driver.Finding {
	f := driver.Finding{Check: "writes", Observed: "accepted"}
	if l.write == "" {
		return f
	}
	f.Severity, f.Observed = driver.Broken, l.write
	f.Impact = "no lock can be taken now"
	f.Fix = "see what the server's error asks for"
	for prefix, do := range map[string]string{
		"OOM":        "raise maxmemory, or remove data",
		"READONLY":   "connect to the master",
		"NOREPLICAS": "bring the replicas back, or lower min-replicas-to-write",
		"MISCONF":    "give the server's disk some space and the right to write",
		"LOADING":    "wait until the server has read its data",
		"BUSY":       "SCRIPT KILL, and find the script that blocks the server",
	} {
		if strings.HasPrefix(l.write, prefix) {
			f.Fix = do
		}
	}
	return f
}
