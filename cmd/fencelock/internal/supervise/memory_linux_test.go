package supervise_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/supervise"
)

// Only what is in the file as it is in memory is given back.
func TestUnchanged(t *testing.T) {
	const smaps = `00400000-00e95000 r-xp 00000000 fe:01 123 /usr/bin/fencelock
Rss:                4756 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
01a9c000-01b0b000 rw-p 0169c000 fe:01 123 /usr/bin/fencelock
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd wr mr mw me ac
7fa55a880000-7fa55a884000 r--p 001cf000 fe:01 456 /usr/lib/x86_64-linux-gnu/libc.so.6
Anonymous:            16 kB
Swap:                  0 kB
VmFlags: rd mr mw me ac
7fa55a8b4000-7fa55a8b5000 r--p 001cf000 fe:01 456 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
Anonymous:             0 kB
Swap:                  4 kB
VmFlags: rd mr mw me ac
7fa55a8be000-7fa55a8c0000 r--s 00000000 fe:01 789 /var/cache/shared
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr me ms
236cba000000-236cba800000 r--p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
7fa55a6be000-7fa55a814000 r-xp 00026000 fe:01 456 /usr/lib/x86_64-linux-gnu/libc.so.6
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
`
	want := [][2]uintptr{{0x400000, 0xa95000}, {0x7fa55a6be000, 0x156000}}
	if d := cmp.Diff(want, supervise.Unchanged([]byte(smaps))); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	supervise.GiveBackMemory()
	if own, err := os.ReadFile("/proc/self/smaps"); err != nil || len(supervise.Unchanged(own)) == 0 {
		t.Errorf("nothing of this process could be given back: %v", err)
	}
}
