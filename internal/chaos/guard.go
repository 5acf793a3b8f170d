//go:build unix

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// most is how many writes a guard accepts.
const most = 1 << 20

// A guard is a counter in a file that several processes have mapped: the list of the tokens whose
// writes it has accepted, in their order. A write is one atomic step, so a process that is frozen or
// killed blocks nobody.
type guard struct {
	tokens []atomic.Int64
	next   int // the first entry that may be free
}

// openGuard maps the counter of a name, which lies in dir. The mapping ends with the process, which
// is of no use without it.
func openGuard(dir, name string) *guard {
	const size = most * int(unsafe.Sizeof(atomic.Int64{}))
	file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%x.counter", name)), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer file.Close()
		err = file.Truncate(int64(size))
	}
	if err != nil {
		panic(err)
	}
	page, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return &guard{tokens: unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&page[0])), most)}
}

// write counts up, unless the guard has accepted a greater token. It returns the new count. If the
// guard is broken, it accepts every token. A full one accepts none, and returns 0.
func (g *guard) write(token int64, broken bool) (count int64, refused bool) {
	for ; g.next < most; g.next++ {
		if g.tokens[g.next].Load() != 0 {
			continue
		}
		if !broken && g.next > 0 && g.tokens[g.next-1].Load() > token {
			return 0, true
		}
		if g.tokens[g.next].CompareAndSwap(0, token) {
			g.next++
			return int64(g.next), false
		}
	}
	return 0, false
}
