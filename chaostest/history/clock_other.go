//go:build !darwin && !linux

package history

import "time"

func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
