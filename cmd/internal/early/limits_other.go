//go:build unix && !linux

package early

// freeTasks does not look.
func freeTasks(need int) int { return need }
