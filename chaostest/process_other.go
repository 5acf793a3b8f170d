//go:build !unix

package chaostest

import "os"

var stop, resume os.Signal // nil: a process cannot be frozen
