//go:build unix && !linux

package early

// freeTasks does not look.
func freeTasks(most int) int { return most }
