//go:build unix

// Package early checks the limits on resources, and handles signals that arrive while the command
// starts. The program imports it for its effect. It is a package of its own because its init function
// then runs before those of most packages, which take most of the start.
package early

import "github.com/fencelock/fencelock/cmd/internal/supervise"

func init() {
	checkLimits()
	supervise.ExitOnSignals()
}
