package supervise

import (
	"bufio"
	"bytes"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// GiveBackMemory lets go of what only the start of the process needed: free memory,
// and the pages of the program and of its libraries, which the kernel maps again when
// they are used. A process that waits for hours needs few of them.
//
// It takes some milliseconds, and may be called at any time.
func GiveBackMemory() {
	debug.FreeOSMemory()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return // it costs some MB
	}
	for _, m := range unchanged(smaps) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.size, unix.MADV_DONTNEED)
	}
}

// mapping is a part of the memory.
type mapping struct{ start, size uintptr }

// unchanged returns the parts of files that are mapped to be read only, and of which no
// page has a copy of its own. A page that was written to before it became read only, as
// by a dynamic linker, would come back as it is in the file.
func unchanged(smaps []byte) (parts []mapping) {
	var m mapping
	var ok bool
	for lines := bufio.NewScanner(bytes.NewReader(smaps)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) < 2:
		case !strings.HasSuffix(f[0], ":"):
			m, ok = readOnlyFile(f)
		case (f[0] == "Anonymous:" || f[0] == "Swap:") && f[1] != "0":
			ok = false
		case f[0] == "VmFlags:" && ok: // the last line of each part
			parts = append(parts, m)
		}
	}
	return parts
}

// readOnlyFile reads the first line of a part.
func readOnlyFile(f []string) (m mapping, ok bool) {
	if len(f) < 6 || !strings.HasPrefix(f[5], "/") || len(f[1]) < 4 || f[1][1] != '-' || f[1][3] != 'p' {
		return m, false
	}
	first, last, _ := strings.Cut(f[0], "-")
	start, wrong := strconv.ParseUint(first, 16, 64)
	end, bad := strconv.ParseUint(last, 16, 64)
	return mapping{uintptr(start), uintptr(end - start)}, wrong == nil && bad == nil && end > start
}
