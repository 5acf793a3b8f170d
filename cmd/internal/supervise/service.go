//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// starterName is the first argument of a starter and its name in the process table.
const starterName = "lock-starter"

// addressed are variables in which systemd names the process for which sockets or the watchdog of a
// service are meant. Programs ignore them if they name another process. The value is a second
// variable, which must not be passed on if the process number changes; "" means none.
var addressed = map[string]string{"LISTEN_PID": "LISTEN_PIDFDID", "WATCHDOG_PID": ""}

// forCommand returns the variables of env that name this process, and env without what goes with
// them. The command gets its own number in them: the sockets of a service are for the command.
func forCommand(env []string) (names, rest []string) {
	own := strconv.Itoa(os.Getpid())
	for name, beside := range addressed {
		if slices.Contains(env, name+"="+own) {
			names = append(names, name)
			env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return beside != "" && strings.HasPrefix(kv, beside+"=") })
		}
	}
	return names, env
}

// A starter is a process that the watchdog starts instead of the command, if the environment of the
// command must have its process number: lock-starter NAMES PROGRAM ARG... It sets the variables and
// becomes the command. Most commands need none.
func init() {
	if len(os.Args) < 4 || os.Args[0] != starterName {
		return
	}
	for _, name := range strings.Split(os.Args[1], ",") {
		os.Setenv(name, strconv.Itoa(os.Getpid()))
	}
	err := Exec(os.Args[2], os.Args[3:], os.Environ())
	fmt.Fprintln(os.Stderr, "fencelock:", err)
	code := Failed
	if start, ok := errors.AsType[*StartError](err); ok {
		code = start.Code
	}
	os.Exit(code)
}

// program returns the path and the arguments that start the command, or its starter.
func (s *watchdog) program() (path string, args []string, err error) {
	path, args = string(s.Path), split(s.Args)
	if len(s.Own) == 0 {
		return path, args, nil
	}
	self, err := OwnProgram()
	return self, append([]string{starterName, strings.Join(s.Own, ","), path}, args...), err
}
