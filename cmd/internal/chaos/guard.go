//go:build unix

package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// countUp counts up the guarded counter of a name, which is a file in dir, unless it has accepted a
// greater token. It returns the new count. If the guard is broken, it accepts every token. A process
// that is frozen meanwhile lets others wait.
func countUp(dir, name string, token int64, broken bool) (count int64, refused bool, err error) {
	file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%x.counter", name)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, false, err
	}
	defer file.Close() // it ends the lock
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return 0, false, err
	}
	var last struct{ Count, Token int64 }
	if err := binary.Read(file, binary.NativeEndian, &last); err != nil && !errors.Is(err, io.EOF) {
		return 0, false, err
	}
	if !broken && last.Token > token {
		return 0, true, nil
	}
	last.Count, last.Token = last.Count+1, token
	text, err := binary.Append(nil, binary.NativeEndian, last)
	if err == nil {
		_, err = file.WriteAt(text, 0)
	}
	return last.Count, false, err
}
